//! Tests of `glob`, in a file of their own for their length.

use proptest::prelude::*;

use super::*;

fn matches(pattern: &str, name: &str) -> bool {
    Glob::parse(pattern).unwrap_or_else(|error| panic!("{error}")).is_match(name)
}

#[track_caller]
fn fault(pattern: &str) -> (usize, &'static str) {
    match Glob::parse(pattern) {
        Err(Error::BadPattern { pattern: named, position, reason }) => {
            assert_eq!(named, pattern);
            (position, reason)
        }
        other => panic!("{pattern:?}: expected a bad pattern, found {other:?}"),
    }
}

#[track_caller]
fn assert_fault(pattern: &str, position: usize, words: &str) {
    let (at, reason) = fault(pattern);
    assert_eq!(at, position, "{pattern:?}: {reason}");
    assert!(reason.contains(words), "{pattern:?}: {reason}");
}

#[test]
fn a_star_passes_over_dots_and_slashes() {
    assert!(matches("model.*.weight", "model.layers.0/mlp.weight"));
    assert!(matches("*", ""));
    assert!(matches("*", "two\nlines"));
    assert!(matches("a**b***", "ab"));
    assert!(!matches("model.*.weight", "model.weight"));
}

#[test]
fn a_question_mark_is_one_character_of_any_length_in_bytes() {
    assert!(matches("?.?", "é.\n"));
    assert!(!matches("?", ""));
    assert!(!matches("?", "ab"));
}

#[test]
fn the_whole_name_must_match() {
    assert!(matches("norm", "norm"));
    assert!(!matches("norm", "model.norm"));
    assert!(!matches("norm", "norm.weight"));
    assert!(!matches("norm", "norm\n"));
    assert!(!matches("{a,b}", "ab"));
    assert!(matches("", "") && !matches("", "a"));
}

#[test]
fn a_class_is_one_of_its_characters() {
    assert!(matches("[a-cx]", "b") && matches("[a-cx]", "x") && !matches("[a-cx]", "d"));
    assert!(matches("[a-]", "-") && matches("[-a]", "-") && matches("[a-c-]", "-"));
    assert!(matches(r"[\]]", "]") && matches(r"[\\]", r"\") && matches(r"[+-\]]", "A"));
    assert!(matches("[*?{},.[^!]", "{") && matches("[*?{},.[^!]", "!") && !matches("[*?.]", "a"));
    assert!(matches("[&&~~]", "~") && matches("[é-ü]", "ö"));
    assert!(!matches("[ab]", "ab") && !matches("[ab]", ""));
}

#[test]
fn a_negated_class_is_any_other_character() {
    for pattern in ["[!a-c]", "[^a-c]"] {
        assert!(matches(pattern, "d") && matches(pattern, "é") && matches(pattern, "."));
        assert!(!matches(pattern, "b") && !matches(pattern, ""));
    }
    assert!(matches("[!!]", "^") && !matches("[!!]", "!"));
}

#[test]
fn alternatives_may_nest_and_be_empty() {
    assert!(matches("{q,k,v}_proj", "k_proj") && !matches("{q,k,v}_proj", "o_proj"));
    assert!(matches("a{,.b}", "a") && matches("a{,.b}", "a.b") && matches("{}", ""));
    assert!(matches("{a{b,c*}d,e}", "acccd") && matches("{a{b,c*}d,e}", "e"));
    assert!(!matches("{a{b,c}d,e}", "ab"));
    assert!(matches("a,b", "a,b"));
}

#[test]
fn a_range_has_both_ends_and_no_leading_zeros() {
    for pattern in ["l.{0..15}.w", "l.{15..0}.w"] {
        for number in 0..=15 {
            assert!(matches(pattern, &format!("l.{number}.w")));
        }
        assert!(!matches(pattern, "l.16.w") && !matches(pattern, "l.1.5.w"));
        assert!(!matches(pattern, "l.07.w") && !matches(pattern, "l..w"));
    }
    assert!(matches("{7..7}", "7"));
}

#[test]
fn a_range_with_a_leading_zero_is_padded_to_the_longer_end() {
    assert!(matches("{00..15}", "07") && matches("{00..15}", "15"));
    assert!(!matches("{00..15}", "7") && !matches("{00..15}", "007"));
    assert!(matches("{1..010}", "003") && matches("{1..010}", "010") && !matches("{1..010}", "10"));
}

#[test]
fn ranges_stand_among_alternatives() {
    assert!(matches("{0..3,7,a*}", "2") && matches("{0..3,7,a*}", "7") && matches("{x,0..3}", "3"));
    assert!(!matches("{0..3,7}", "5"));
    assert!(matches("{a..c}", "a..c") && matches(r"{0\..3}", "0..3") && matches("0..3", "0..3"));
    assert!(matches("{1}", "1") && matches("{1.5,2}", "1.5"));
}

#[test]
fn a_range_of_any_size_is_a_small_regex() {
    let range = numbers("0", "9999999999999999999").unwrap();
    assert!(range.len() < 400, "{range}");
    let range = numbers("1", "8888888888888888888").unwrap();
    assert!(range.len() < 1000, "{range}");
    assert!(matches("{0..100000}", "100000") && !matches("{0..100000}", "100001"));
}

#[test]
fn a_backslash_takes_the_meaning_from_what_follows() {
    assert!(matches(r"\*\?\[\]\{\}\\\a", r"*?[]{}\a"));
    assert!(!matches(r"\*", "a"));
    assert!(matches(r"\**", "*a") && matches(r"\.*", ".a"));
    assert!(matches(r"{a\,b,c\}}", "a,b") && matches(r"{a\,b,c\}}", "c}"));
}

#[test]
fn the_signs_of_a_regex_are_literal() {
    let name = r"^a.b+c|(d)$#&~-/ é";
    assert!(matches(name, name));
    assert!(!matches("a.b", "axb") && !matches("a+", "aa") && !matches("a|b", "a"));
}

#[test]
fn a_bracket_that_is_not_closed_is_named() {
    assert_fault("é[ab", 2, "not closed");
    assert_fault("[a-", 0, "not closed");
    assert_fault("[!", 0, "not closed");
}

#[test]
fn a_brace_that_is_not_closed_is_named() {
    assert_fault("a{b", 1, "not closed");
    assert_fault("{a{b,c}", 0, "not closed");
    assert_fault("{0..3", 0, "not closed");
}

#[test]
fn a_closing_sign_that_closes_nothing_is_named() {
    assert_fault("a}", 1, "no brace is open");
    assert_fault("{a}}", 3, "no brace is open");
    assert_fault("a]", 1, "no bracket is open");
}

#[test]
fn a_backslash_at_the_end_is_named() {
    assert_fault(r"ab\", 2, "nothing follows");
    assert_fault(r"[ab\", 3, "nothing follows");
}

#[test]
fn an_empty_class_is_named() {
    assert_fault("a[]", 1, "empty");
    assert_fault("[!]", 0, "empty");
    assert_fault("[]a]", 0, "empty");
}

#[test]
fn a_reversed_class_range_is_named() {
    assert_fault("[xz-a]", 2, "reversed");
}

#[test]
fn a_number_range_that_is_not_one_is_named() {
    for pattern in ["{a,0..}", "{a,0..b}", "{a,0..10..2}", "{a,0..*}", "{a,0..-1}"] {
        assert_fault(pattern, 3, "two whole numbers");
    }
    assert_fault("{0..10000000000000000000}", 1, "19 digits");
    assert_fault("{00000000000000000000..1}", 1, "19 digits");
}

#[test]
fn deep_nesting_is_an_error_and_no_stack_overflow() {
    assert!(matches(&format!("{}a{}", "{".repeat(MAX_DEPTH), "}".repeat(MAX_DEPTH)), "a"));
    assert_fault(&"{".repeat(MAX_PATTERN_LEN), MAX_DEPTH, "32 deep");
}

#[test]
fn a_pattern_that_is_too_long_is_an_error() {
    assert!(matches(&"a".repeat(MAX_PATTERN_LEN), &"a".repeat(MAX_PATTERN_LEN)));
    assert_fault(&"a".repeat(MAX_PATTERN_LEN + 1), MAX_PATTERN_LEN, "16384 bytes");
}

#[test]
fn a_pattern_that_grows_too_large_is_an_error() {
    assert_fault(&"{0..8888888888888888888}".repeat(600), 0, "too large");
}

#[test]
fn stars_and_alternatives_do_not_multiply() {
    assert!(!matches(&format!("{}b", "{a,aa,*}".repeat(50)), &"a".repeat(100)));
}

#[test]
fn the_message_names_the_pattern_the_place_and_the_way_out() {
    let message = Glob::parse("model.{0..3").unwrap_err().to_string();
    let place = r"the brace is not closed; write `\{` for the character (at byte 6)";
    assert_eq!(message, format!(r#"glob "model.{{0..3": {place}"#));
}

#[test]
fn a_regex_matches_anywhere_unless_anchored() {
    assert!(search("norm").unwrap().is_match("model.norm.weight"));
    assert!(!search("^norm").unwrap().is_match("model.norm.weight"));
}

#[test]
fn a_bad_regex_is_an_error() {
    for pattern in ["a(b", r"(\w{900}){900}", &"(".repeat(1 << 10), &"a".repeat(1 << 20)] {
        let error = search(pattern).unwrap_err();
        assert!(matches!(error, Error::BadRegex { .. }));
        assert!(error.to_string().starts_with(r#"regex ""#));
    }
}

/// A second reading of the grammar, by another way: braces are expanded into all patterns without them.
fn expand(pattern: &[char]) -> Vec<Vec<char>> {
    let (mut depth, mut escaped, mut in_class) = (0, false, false);
    let (mut open, mut cuts) = (0, vec![]);
    for (at, &char) in pattern.iter().enumerate() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            _ if in_class => {}
            '[' => in_class = true,
            '{' => {
                depth += 1;
                if depth == 1 {
                    open = at;
                    cuts.push(at);
                }
            }
            ',' if depth == 1 => cuts.push(at),
            '}' => {
                depth -= 1;
                if depth == 0 {
                    cuts.push(at);
                    let insides = cuts.windows(2).flat_map(|cut| alternative(&pattern[cut[0] + 1..cut[1]]));
                    let tail = &pattern[at + 1..];
                    return insides
                        .flat_map(|inside| expand(&[&pattern[..open], &inside, tail].concat()))
                        .collect();
                }
            }
            _ => {}
        }
    }
    vec![pattern.to_vec()]
}

fn alternative(inside: &[char]) -> Vec<Vec<char>> {
    let text: String = inside.iter().collect();
    let number = |digits: &str| digits.parse::<u64>().ok();
    let Some((first, last)) = text.split_once("..") else { return vec![inside.to_vec()] };
    let (Some(one), Some(other)) = (number(first), number(last)) else { return vec![inside.to_vec()] };
    let padded = [first, last].iter().any(|digits| digits.starts_with('0') && *digits != "0");
    let width = if padded { first.len().max(last.len()) } else { 0 };
    (one.min(other)..=one.max(other)).map(|n| format!("{n:0width$}").chars().collect()).collect()
}

/// Matches a pattern without braces by trying everything.
fn naive(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', rest @ ..] => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
        ['?', rest @ ..] => !name.is_empty() && naive(rest, &name[1..]),
        ['\\', char, rest @ ..] => name.first() == Some(char) && naive(rest, &name[1..]),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|&char| char == ']').unwrap();
            let (negated, members) = match &rest[..end] {
                ['!', members @ ..] => (true, members),
                members => (false, members),
            };
            let hit = |char| match members {
                [low, '-', high] => (low..=high).contains(&char),
                _ => members.contains(char),
            };
            name.first().is_some_and(|char| hit(char) != negated) && naive(&rest[end + 1..], &name[1..])
        }
        [char, rest @ ..] => name.first() == Some(char) && naive(rest, &name[1..]),
    }
}

/// Right patterns over the alphabet `a b . 0 1 2`.
fn patterns() -> impl Strategy<Value = String> {
    let leaves = r"a b . 0 1 * ? [ab] [!a] [a-b] [!0-1] \* \a , {0..2} {2..0} {9..12,a} {00..11} {}";
    let leaf = prop::sample::select(leaves.split(' ').collect::<Vec<_>>()).prop_map(String::from);
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner, 1..4).prop_map(|parts| format!("{{{}}}", parts.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn a_naive_matcher_agrees(
        pattern in patterns(), names in prop::collection::vec("[ab.012*,]{0,5}", 1..20),
    ) {
        let glob = Glob::parse(&pattern);
        prop_assume!(glob.is_ok());
        let glob = glob.unwrap();
        let expanded = expand(&pattern.chars().collect::<Vec<_>>());
        for name in names {
            let chars: Vec<_> = name.chars().collect();
            let expected = expanded.iter().any(|pattern| naive(pattern, &chars));
            prop_assert_eq!(glob.is_match(&name), expected, "{:?} {:?}", pattern, name);
        }
    }

    #[test]
    fn a_name_without_special_characters_matches_itself_alone(
        name in r"[^*?\[\]{}\\]{0,8}", other in r"\PC{0,8}",
    ) {
        let glob = Glob::parse(&name).unwrap();
        prop_assert!(glob.is_match(&name));
        prop_assert_eq!(glob.is_match(&other), name == other);
        for longer in [format!("{name}a"), format!("a{name}")] {
            prop_assert!(!glob.is_match(&longer));
        }
    }

    #[test]
    fn any_text_escaped_matches_itself(name in any::<String>()) {
        let escaped: String = name.chars().flat_map(|char| ['\\', char]).collect();
        prop_assert!(Glob::parse(&escaped).unwrap().is_match(&name));
    }

    #[test]
    fn a_range_agrees_with_the_integers(first in 0u64..3000, last in 0u64..3000, width in 0usize..6) {
        let glob = Glob::parse(&format!("{{{first:0width$}..{last}}}")).unwrap();
        let text = format!("{first:0width$}");
        let padded = text.len() > 1 && text.starts_with('0');
        let width = if padded { text.len().max(last.to_string().len()) } else { 0 };
        for number in 0..3100 {
            let inside = (first.min(last)..=first.max(last)).contains(&number);
            let text = format!("{number:0width$}");
            prop_assert_eq!(glob.is_match(&text), inside);
            let padded = format!("0{text}");
            prop_assert!(!glob.is_match(&padded));
        }
    }

    #[test]
    fn a_range_of_large_numbers_agrees_with_the_integers(
        ends in any::<[u64; 2]>(), shift in any::<[u8; 3]>(), near in any::<u64>(),
    ) {
        let fit = |number: u64, shift: u8| (number >> (shift % 64)) % 10_000_000_000_000_000_000;
        let (first, last) = (fit(ends[0], shift[0]), fit(ends[1], shift[1]));
        let glob = Glob::parse(&format!("{{{first}..{last}}}")).unwrap();
        let (low, high) = (first.min(last), first.max(last));
        for number in [low, high, low.saturating_sub(1), high + 1, fit(near, shift[2])] {
            prop_assert_eq!(glob.is_match(&number.to_string()), (low..=high).contains(&number));
        }
    }

    #[test]
    fn no_pattern_panics(pattern in r"[\[\]{}\\*?!^\-,.a0-9é]{0,40}", name in "[a0.é]{0,9}") {
        match Glob::parse(&pattern) {
            Ok(glob) => drop(glob.is_match(&name)),
            Err(Error::BadPattern { position, .. }) => prop_assert!(pattern.is_char_boundary(position)),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
