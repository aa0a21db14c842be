//! A Rust file as tidy sees it: what is code in it, and what is a literal, a comment or a test.

use std::ops::Range;

/// A Rust file. All views have the length and the line breaks of the original, so that an offset holds in
/// each.
pub(crate) struct Source {
    /// Relative to the root of the workspace, with `/` on every system.
    pub(crate) path: String,
    /// The code alone: comments and literals are blank.
    pub(crate) code: String,
    /// The code that is shipped: items under `#[cfg(test)]` are blank too.
    pub(crate) shipped: String,
    /// Files of modules that are declared under `#[cfg(test)]`, by name.
    pub(crate) test_modules: Vec<String>,
    /// Where the string and character literals are, quotes and prefixes included.
    literals: Vec<Range<usize>>,
    text: String,
}

impl Source {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let spans = spans(&text);
        let code = blank(&text, spans.iter().map(|(_, range)| range.clone()));
        let literal = |(token, range)| (token == Token::Literal).then_some(range);
        let literals = spans.into_iter().filter_map(literal).collect();
        let tests = test_items(&code);
        let test_modules = tests.iter().flat_map(|range| modules(slice(&code, range.clone()))).collect();
        let shipped = blank(&code, tests);
        Self { path: path.into(), code, shipped, test_modules, literals, text }
    }

    /// `path:line` of an offset.
    pub(crate) fn place(&self, offset: usize) -> String {
        let line = 1 + slice(&self.text, 0..offset).matches('\n').count();
        format!("{}:{line}", self.path)
    }

    pub(crate) fn lines(&self) -> usize {
        self.text.lines().count()
    }

    /// The string literals that begin in `range`, with their offsets and without their quotes.
    pub(crate) fn literals(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &str)> {
        self.literals.iter().filter(move |literal| range.contains(&literal.start)).map(|literal| {
            let quoted = slice(&self.text, literal.clone());
            (literal.start, quoted.trim_start_matches(['b', 'c', 'r', '#']).trim_matches(['"', '#']))
        })
    }
}

/// The offsets at which `word` stands as a whole word.
pub(crate) fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = slice(code, 0..at).chars().next_back();
        let after = slice(code, at + word.len()..code.len()).chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The identifier at the start of `code`; empty where there is none.
pub(crate) fn word(code: &str) -> &str {
    slice(code, 0..code.find(|c| !is_word(c)).unwrap_or(code.len()))
}

/// The names in `mod name;`, in order.
pub(crate) fn modules(code: &str) -> Vec<String> {
    let declared = |at: usize| {
        let name = word(slice(code, at + "mod".len()..code.len()).trim_start());
        let end = slice(code, at..code.len()).find([';', '{']).map(|end| at + end);
        (code.get(end?..)?.starts_with(';') && !name.is_empty()).then(|| name.to_owned())
    };
    find_word(code, "mod").filter_map(declared).collect()
}

/// The length of what stands before the bracket that closes more than was opened; all of `code` if none does.
pub(crate) fn until_closed(code: &str) -> usize {
    let mut depth = 0_i32;
    for (at, c) in code.char_indices() {
        depth += match c {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        if depth < 0 {
            return at;
        }
    }
    code.len()
}

/// `code[range]`, or nothing where that is no part of it.
pub(crate) fn slice(code: &str, range: Range<usize>) -> &str {
    code.get(range).unwrap_or("")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Comment,
    Literal,
    Code,
}

/// The comments and literals of a Rust file, in order.
fn spans(text: &str) -> Vec<(Token, Range<usize>)> {
    let mut spans = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (token, length) = token(slice(text, at..text.len()));
        if token != Token::Code {
            spans.push((token, at..at + length));
        }
        at += length;
    }
    spans
}

/// What `rest`, which is not empty, begins with, and its length in bytes.
fn token(rest: &str) -> (Token, usize) {
    if rest.starts_with("//") {
        return (Token::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Token::Comment, block_comment(rest));
    }
    let prefix = word(rest);
    let quoted = slice(rest, prefix.len()..rest.len());
    match prefix {
        "" | "b" | "c" if quoted.starts_with('"') => (Token::Literal, prefix.len() + string(quoted)),
        "r" | "br" | "cr" if quoted.trim_start_matches('#').starts_with('"') => {
            (Token::Literal, prefix.len() + raw_string(quoted))
        }
        "" if rest.starts_with('\'') => {
            character(rest).map_or((Token::Code, 1), |length| (Token::Literal, length))
        }
        "" => (Token::Code, rest.chars().next().map_or(1, char::len_utf8)),
        word => (Token::Code, word.len()),
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = rest.as_bytes().get(at..at + 2);
        match here {
            Some(b"/*") => depth += 1,
            Some(b"*/") => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == '"' && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    rest.len()
}

fn raw_string(rest: &str) -> usize {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let open = hashes + 1;
    slice(rest, open..rest.len()).find(&end).map_or(rest.len(), |at| open + at + end.len())
}

/// The length of a character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    if chars.next()?.1 == '\\' {
        chars.next()?;
    }
    let (at, next) = chars.next()?;
    if next == '\'' {
        return Some(at + 1);
    }
    // Of several characters between quotes, only an escape is one literal.
    if rest.starts_with("'\\") { rest.get(at..)?.find('\'').map(|end| at + end + 1) } else { None }
}

/// `text` with spaces for every byte of `ranges` but the line breaks.
fn blank(text: &str, ranges: impl IntoIterator<Item = Range<usize>>) -> String {
    let mut blanked = String::with_capacity(text.len());
    for range in ranges {
        blanked.push_str(slice(text, blanked.len()..range.start));
        let spaces = slice(text, range).bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' });
        blanked.extend(spaces);
    }
    blanked.push_str(slice(text, blanked.len()..text.len()));
    blanked
}

/// The items that exist only in tests, their attributes included. `code` is free of comments and literals.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut items: Vec<Range<usize>> = Vec::new();
    let attributes = ["#[cfg(test)]", "#[cfg(all(test,"];
    let mut starts: Vec<usize> =
        attributes.iter().flat_map(|start| code.match_indices(start)).map(|(at, _)| at).collect();
    starts.sort_unstable();
    for start in starts {
        if items.last().is_none_or(|before| before.end <= start) {
            items.push(start..start + item_length(slice(code, start..code.len())));
        }
    }
    items
}

/// The length of an item: up to its semicolon, its block, or the end of what it stands in.
fn item_length(code: &str) -> usize {
    let mut at = 0;
    while let Some(c) = slice(code, at..code.len()).chars().next() {
        let inside = at + c.len_utf8();
        match c {
            ';' => return inside,
            '}' | ')' | ']' => return at,
            '{' | '(' | '[' => {
                at = inside + until_closed(slice(code, inside..code.len())) + 1;
                if c == '{' {
                    return at.min(code.len());
                }
            }
            _ => at = inside,
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("a.rs", text).code
    }

    fn words(text: &str) -> Vec<String> {
        code(text).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_no_code() {
        assert_eq!(
            words("a // unsafe\nb /* unsafe /* nested */ unsafe */ c /// unsafe\nd"),
            ["a", "b", "c", "d"]
        );
        assert_eq!(words("a /* never closed"), ["a"]);
        assert_eq!(words("a / b"), ["a", "/", "b"]);
    }

    #[test]
    fn literals_are_no_code() {
        assert_eq!(words(r#"a "unsafe \" unsafe \\" b"#), ["a", "b"]);
        assert_eq!(words(r##"a r#"unsafe " \"# b"##), ["a", "b"]);
        assert_eq!(words(r#"a b"unsafe" br"unsafe\" c"unsafe" d"#), ["a", "d"]);
        assert_eq!(words(r#"a "// no comment" b"#), ["a", "b"]);
        assert_eq!(words("a \"never closed"), ["a"]);
    }

    #[test]
    fn characters_and_lifetimes_are_told_apart() {
        assert_eq!(words(r#"a '"' b '\'' c '\u{1F600}' d b'"' e 'é' f '\\' g"#).join(""), "abcdbefg");
        assert_eq!(words("fn f<'a>(x: &'a str) {}").join(" "), "fn f<'a>(x: &'a str) {}");
        assert_eq!(words("'outer: loop { '\"' }").join(" "), "'outer: loop { }");
    }

    #[test]
    fn raw_identifiers_are_code() {
        assert_eq!(words("r#type \"x\" var\"x\" r"), ["r#type", "var", "r"]);
    }

    #[test]
    fn offsets_and_lines_stay_what_they_were() {
        let text = "é /* ü\n */ \"ö\n\" x";
        let source = Source::new("a.rs", text);
        assert_eq!((source.code.len(), source.code.find('x')), (text.len(), text.find('x')));
        assert_eq!(source.place(source.code.find('x').unwrap()), "a.rs:3");
    }

    #[test]
    fn literals_come_without_quotes() {
        let source = Source::new("a.rs", r###"f("One", r#"Two"#, b"Three") // "Four""###);
        let found: Vec<&str> = source.literals(0..usize::MAX).map(|(_, literal)| literal).collect();
        assert_eq!(found, ["One", "Two", "Three"]);
    }

    #[test]
    fn items_under_cfg_test_are_not_shipped() {
        let text = "a;\n#[cfg(test)]\nmod tests { fn f() { '}'; \"}\" } }\nb;\n#[cfg(test)] use x::{y};\nc;
            #[cfg(all(test, unix))] #[path = \"y\"] fn f(a: [u8; 4]) -> T { {} }\nd; #[cfg(unix)] e;
            struct S { f: u8, #[cfg(test)] g: u8 } h;";
        let shipped: String = Source::new("a.rs", text).shipped.split_whitespace().collect();
        assert_eq!(shipped, "a;b;;c;d;#[cfg(unix)]e;structS{f:u8,}h;");
    }

    #[test]
    fn modules_of_their_own_file_are_found() {
        let source =
            Source::new("a.rs", "mod a;\npub mod b;\n#[cfg(test)]\nmod tests;\nmod inline { }\n// mod c;");
        assert_eq!(modules(&source.shipped), ["a", "b"]);
        assert_eq!(source.test_modules, ["tests"]);
    }

    #[test]
    fn only_whole_words_are_found() {
        assert_eq!(find_word("unsafe_code is_unsafe unsafe", "unsafe").collect::<Vec<_>>(), [22]);
    }
}
