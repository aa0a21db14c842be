//! Patterns of names, compared with a matcher that tries everything.

use weightmap::fuzzing::Glob;

/// Patterns and names that are longer would take the slow matcher too long.
const MOST_BYTES: usize = 60;
const MOST_DEPTH: usize = 32;

/// Reads a pattern and matches names: the input is both, with a line break between them.
pub fn run(input: &[u8]) {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (pattern, rest) = input.split_once('\n').unwrap_or((input, ""));
    let glob = Glob::parse(pattern);
    if let (Ok(glob), true) = (&glob, pattern.len() > MOST_BYTES) {
        glob.is_match(rest);
    }
    if pattern.len() > MOST_BYTES || rest.len() > MOST_BYTES {
        return;
    }
    let slow = Reader { rest: pattern.chars().collect(), at: 0, depth: 0 }.all();
    assert_eq!(glob.is_ok(), slow.is_some(), "{pattern:?}: {:?}", glob.err().map(|error| error.to_string()));
    let (Ok(glob), Some(slow)) = (glob, slow) else { return };
    for name in [rest.to_owned(), written(&slow, &mut rest.bytes())] {
        assert_eq!(glob.is_match(&name), matches(&slow, &name), "{pattern:?} on {name:?}");
    }
    let name = written(&slow, &mut rest.bytes().rev());
    assert!(name.len() > MOST_BYTES || glob.is_match(&name), "{pattern:?} on {name:?}");
}

/// What follows each other in a pattern.
type Sequence = Vec<Part>;

#[derive(Debug)]
enum Part {
    Any,
    One,
    Char(char),
    Class(bool, Vec<(char, char)>),
    Either(Vec<Sequence>),
    /// Numbers from one to the other; written with so many digits, or without zeros before them.
    Number(u64, u64, Option<usize>),
}

struct Reader {
    rest: Vec<char>,
    at: usize,
    depth: usize,
}

impl Reader {
    fn all(mut self) -> Option<Sequence> {
        let sequence = self.sequence()?;
        (self.at == self.rest.len()).then_some(sequence)
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek(0)?;
        self.at += 1;
        Some(next)
    }

    /// Up to a sign that belongs to the brace around it.
    fn sequence(&mut self) -> Option<Sequence> {
        let mut sequence = Vec::new();
        while let Some(next) = self.peek(0) {
            if next == '}' || (next == ',' && self.depth > 0) {
                return (self.depth > 0).then_some(sequence);
            }
            self.at += 1;
            sequence.push(match next {
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Char(self.next()?),
                '[' => self.class()?,
                ']' => return None,
                '{' => self.brace()?,
                other => Part::Char(other),
            });
        }
        Some(sequence)
    }

    fn brace(&mut self) -> Option<Part> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return None;
        }
        let mut alternatives = Vec::new();
        loop {
            let number = self.number()?;
            alternatives.push(match number {
                Some(number) => vec![number],
                None => self.sequence()?,
            });
            match self.next()? {
                ',' => {}
                '}' => break,
                _ => return None,
            }
        }
        self.depth -= 1;
        Some(Part::Either(alternatives))
    }

    /// A range of numbers; nothing where there is none, and `None` where it is wrong.
    fn number(&mut self) -> Option<Option<Part>> {
        let digits = |from: usize| {
            self.rest[from..].iter().take_while(|char| char.is_ascii_digit()).collect::<String>()
        };
        let first = digits(self.at);
        let dots = self.at + first.len();
        if first.is_empty() || self.rest.get(dots..dots + 2) != Some(&['.', '.']) {
            return Some(None);
        }
        let last = digits(dots + 2);
        self.at = dots + 2 + last.len();
        let is_ended = matches!(self.peek(0), None | Some(',' | '}'));
        if last.is_empty() || !is_ended || first.len().max(last.len()) > 19 {
            return None;
        }
        let is_padded = [&first, &last].iter().any(|digits| digits.len() > 1 && digits.starts_with('0'));
        let width = is_padded.then(|| first.len().max(last.len()));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(Some(Part::Number(first.min(last), first.max(last), width)))
    }

    fn class(&mut self) -> Option<Part> {
        let negated = matches!(self.peek(0), Some('!' | '^'));
        self.at += usize::from(negated);
        if self.peek(0)? == ']' {
            return None;
        }
        let mut ranges = Vec::new();
        while self.peek(0)? != ']' {
            let first = self.member()?;
            let is_range = self.peek(0)? == '-' && self.peek(1) != Some(']');
            let last = if is_range {
                self.at += 1;
                self.member()?
            } else {
                first
            };
            (first <= last).then(|| ranges.push((first, last)))?;
        }
        self.at += 1;
        Some(Part::Class(negated, ranges))
    }

    fn member(&mut self) -> Option<char> {
        match self.next()? {
            '\\' => self.next(),
            other => Some(other),
        }
    }
}

fn matches(pattern: &Sequence, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    ends(pattern, &name, vec![0]).contains(&name.len())
}

/// Where what begins at one of some places can end.
fn ends(pattern: &Sequence, name: &[char], starts: Vec<usize>) -> Vec<usize> {
    pattern.iter().fold(starts, |starts, part| {
        let mut ends: Vec<usize> = starts.iter().flat_map(|&start| part_ends(part, name, start)).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    })
}

fn part_ends(part: &Part, name: &[char], start: usize) -> Vec<usize> {
    let one = |fits: &dyn Fn(char) -> bool| {
        name.get(start).filter(|char| fits(**char)).map(|_| start + 1).into_iter().collect()
    };
    match part {
        Part::Any => (start..=name.len()).collect(),
        Part::One => one(&|_| true),
        Part::Char(char) => one(&|other| other == *char),
        Part::Class(negated, ranges) => {
            one(&|char| *negated != ranges.iter().any(|(first, last)| (first..=last).contains(&&char)))
        }
        Part::Either(alternatives) => {
            alternatives.iter().flat_map(|pattern| ends(pattern, name, vec![start])).collect()
        }
        Part::Number(low, high, width) => {
            let is_it = |end: &usize| {
                let text: String = name[start..*end].iter().collect();
                let is_number = text.chars().all(|char| char.is_ascii_digit());
                let number = text.parse().ok().filter(|_| is_number);
                let fits = |number: u64| (low..=high).contains(&&number);
                number.is_some_and(fits)
                    && match width {
                        Some(width) => text.len() == *width,
                        None => text == "0" || !text.starts_with('0'),
                    }
            };
            (start + 1..=name.len().min(start + 20)).filter(is_it).collect()
        }
    }
}

/// A name that a pattern matches, by choices that the input makes.
fn written(pattern: &Sequence, choices: &mut dyn Iterator<Item = u8>) -> String {
    let mut name = String::new();
    for part in pattern {
        let choice = choices.next().unwrap_or(0);
        match part {
            Part::Any => name.extend(choices.take(usize::from(choice % 4)).map(char::from)),
            Part::One => name.push(char::from(choice)),
            Part::Char(char) => name.push(*char),
            Part::Class(negated, ranges) => name.push(member(*negated, ranges, choice)),
            Part::Either(alternatives) => {
                name.push_str(&written(&alternatives[usize::from(choice) % alternatives.len()], choices));
            }
            Part::Number(low, high, width) => {
                let number = low + (high - low) / 255 * u64::from(choice);
                let number =
                    if high - low < 255 { low + u64::from(choice) % (high - low + 1) } else { number };
                name.push_str(&format!("{number:00$}", width.unwrap_or(1)));
            }
        }
    }
    name
}

/// A character of a class.
fn member(negated: bool, ranges: &[(char, char)], choice: u8) -> char {
    let is_in = |char: char| ranges.iter().any(|(first, last)| (*first..=*last).contains(&char));
    if negated {
        return (char::from(choice)..).find(|&char| !is_in(char)).unwrap_or('\u{10ffff}');
    }
    let (first, last) = ranges[usize::from(choice) % ranges.len()];
    if choice.is_multiple_of(2) { first } else { last }
}
