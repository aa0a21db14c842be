//! How results and errors are shown: text for people, or one JSON document.
//!
//! Names and metadata come from files that nobody vouches for. All that is written here has its control
//! characters escaped, so that no file can drive the terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use anyhow::{Context as _, Result};
use console::{Term, measure_text_width};
use indicatif::BinaryBytes;
use serde::Serialize;
use serde_json::ser::Formatter;
use weightmap::LoadReport;

/// Spaces between two columns.
const GAP: usize = 2;

/// Writes one JSON document to the standard output, in one line.
pub(crate) fn json(document: &impl Serialize) -> Result<()> {
    to_stdout(|out| {
        document.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, Escaping))?;
        writeln!(out)
    })
}

/// Writes text to the standard output: as wide as it is, or, on a terminal, laid out for its width.
pub(crate) fn text(write: impl FnOnce(&mut Page<'_>) -> io::Result<()>) -> Result<()> {
    let columns = Term::stdout().size_checked().map(|(_, columns)| columns.into());
    to_stdout(|out| write(&mut Page { out, columns }))
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&mut out).and_then(|()| out.flush());
    // What could not be written would be tried again when the buffer is dropped.
    let _ = out.into_parts();
    written.context("cannot write to the standard output")
}

/// Whether nobody reads the standard output any more.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Tells an error on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    to_stderr("error", error);
}

/// Tells on stderr of a failure that does not end the program.
pub(crate) fn note(error: &anyhow::Error) {
    to_stderr("note", error);
}

/// Tells on stderr what to do next.
pub(crate) fn hint(text: &str) {
    // Where stderr is closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "hint: {text}");
}

fn to_stderr(label: &str, error: &anyhow::Error) {
    let message = format!("{error:#}");
    let lines: Vec<_> = message.lines().map(escaped).collect();
    // Where stderr is closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "{label}: {}", lines.join("\n"));
}

/// Text in the making, for a terminal of some columns or for a file or pipe, where lines have any length.
pub(crate) struct Page<'a> {
    out: &'a mut dyn Write,
    columns: Option<usize>,
}

/// To which side the cells of a column are moved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

impl Page<'_> {
    /// A line that is never broken.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", escaped(text))
    }

    /// Lines that are broken between words where the terminal ends, and go on after `hang` spaces.
    pub(crate) fn prose(&mut self, text: &str, hang: usize) -> io::Result<()> {
        text.lines().try_for_each(|line| match self.columns {
            Some(columns) => writeln!(self.out, "{}", wrapped(&escaped(line), columns, hang)),
            None => self.line(line),
        })
    }

    /// The account of a load.
    pub(crate) fn report(&mut self, report: &LoadReport) -> io::Result<()> {
        self.prose(&report.to_string(), 8)
    }

    /// Whether people read it, as far as can be told.
    pub(crate) fn is_terminal(&self) -> bool {
        self.columns.is_some()
    }

    /// Rows for other programs: cells with a tab between them, which no cell has in it, since it is escaped
    /// there.
    pub(crate) fn records<const N: usize>(
        &mut self,
        rows: impl Iterator<Item = [String; N]>,
    ) -> io::Result<()> {
        for row in rows {
            writeln!(self.out, "{}", row.each_ref().map(|cell| escaped(cell)).join("\t"))?;
        }
        Ok(())
    }

    /// Rows in aligned columns. On a terminal that is too narrow for the widest one, each row becomes a
    /// line with its first cell and the other cells below; nothing is ever cut.
    ///
    /// The rows are made twice, once to be measured, so that any number of them needs no memory.
    pub(crate) fn table<const N: usize>(
        &mut self,
        indent: usize,
        align: [Align; N],
        rows: impl Iterator<Item = [String; N]> + Clone,
    ) -> io::Result<()> {
        let mut widths = [0; N];
        for row in rows.clone() {
            for (widest, cell) in widths.iter_mut().zip(&row) {
                *widest = width(&escaped(cell)).max(*widest);
            }
        }
        let needed = indent + widths.iter().sum::<usize>() + GAP * N.saturating_sub(1);
        for row in rows {
            let cells = row.iter().map(|cell| escaped(cell));
            let line = match self.columns {
                Some(columns) if columns < needed => stacked(cells, indent, columns),
                _ => aligned(cells.zip(align).zip(widths), indent),
            };
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

fn aligned<'a>(cells: impl Iterator<Item = ((Cow<'a, str>, Align), usize)>, indent: usize) -> String {
    let mut line = " ".repeat(indent);
    for (number, ((cell, align), widest)) in cells.enumerate() {
        let gap = if number == 0 { 0 } else { GAP };
        let padding = widest.saturating_sub(width(&cell));
        let (before, after) = match align {
            Align::Left => (gap, padding),
            Align::Right => (gap + padding, 0),
        };
        // Writing to a `String` cannot fail.
        let _ = write!(line, "{:before$}{cell}{:after$}", "", "");
    }
    line.truncate(line.trim_end().len());
    line
}

fn stacked<'a>(cells: impl Iterator<Item = Cow<'a, str>>, indent: usize, columns: usize) -> String {
    let mut text = " ".repeat(indent);
    let mut at = 0;
    for (number, cell) in cells.enumerate() {
        let width = width(&cell);
        if number == 1 || (number > 1 && at + GAP + width > columns) {
            let _ = write!(text, "\n{:1$}", "", indent + GAP);
            at = indent + GAP;
        } else if number > 1 {
            let _ = write!(text, "{:GAP$}", "");
            at += GAP;
        }
        text.push_str(&cell);
        at += width;
    }
    text
}

/// A line broken between words; a word that is longer than a line is left to the terminal.
fn wrapped(line: &str, columns: usize, hang: usize) -> String {
    let hang = hang.min(columns / 2);
    let mut text = String::new();
    let mut at = 0;
    for word in line.split_inclusive(' ') {
        if at > hang && at + width(word.trim_end()) > columns {
            text.truncate(text.trim_end_matches(' ').len());
            let _ = write!(text, "\n{:hang$}", "");
            at = hang;
        }
        text.push_str(word);
        at += width(word);
    }
    text
}

/// The columns that a text takes on a terminal.
fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { measure_text_width(text) }
}

/// A text with its control characters as escapes: `\n`, `\u{1b}`.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_control(character) { safe.extend(character.escape_default()) } else { safe.push(character) }
    }
    Cow::Owned(safe)
}

/// Whether a character controls the terminal or the order in which text is shown, or is never seen.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Compact JSON whose strings have all control characters as escapes, not just those below 32.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        write_escaped(out, fragment, is_control)
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        // JSON text has these between its tokens, where no escape may stand, and never in a string.
        write_escaped(out, fragment, |character| is_control(character) && !"\n\r\t".contains(character))
    }
}

fn write_escaped<W: ?Sized + Write>(
    out: &mut W,
    text: &str,
    escape: impl Fn(char) -> bool,
) -> io::Result<()> {
    let mut rest = text;
    while let Some((at, character)) = rest.char_indices().find(|(_, character)| escape(*character)) {
        let (before, after) = rest.split_at(at);
        out.write_all(before.as_bytes())?;
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}")?;
        }
        rest = after.split_at(character.len_utf8()).1;
    }
    out.write_all(rest.as_bytes())
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A count of bytes in binary units: `999 B`, `1.50 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// A count and what is counted: `1 file`, `2 files`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A share, with more digits where it is small, as that of headers is.
#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let percent = if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    let decimals = if percent < 0.1 { 4 } else { 2 };
    format!("{percent:.decimals$} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(columns: Option<usize>, write: impl FnOnce(&mut Page<'_>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut Page { out: &mut out, columns }).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn table(columns: Option<usize>) -> String {
        let rows = [["a.weight", "[2, 3]", "9 B"], ["層.weight", "[]", "10.0 KiB"]];
        let rows = rows.into_iter().map(|row| row.map(str::to_owned));
        page(columns, |page| page.table(1, [Align::Left, Align::Left, Align::Right], rows))
    }

    #[test]
    fn columns_are_aligned_by_the_width_that_is_seen() {
        let wanted = " a.weight   [2, 3]       9 B\n 層.weight  []      10.0 KiB\n";
        assert_eq!(table(None), wanted);
        assert_eq!(table(Some(28)), wanted);
    }

    #[test]
    fn a_table_that_is_too_wide_for_the_terminal_is_stacked_and_nothing_is_cut() {
        assert_eq!(table(Some(27)), " a.weight\n   [2, 3]  9 B\n 層.weight\n   []  10.0 KiB\n");
        assert_eq!(table(Some(12)), " a.weight\n   [2, 3]\n   9 B\n 層.weight\n   []\n   10.0 KiB\n");
    }

    #[test]
    fn prose_is_broken_between_words_on_a_terminal_only() {
        let text = "time     open 1 ms, read 2 ms\nend";
        assert_eq!(page(None, |page| page.prose(text, 9)), "time     open 1 ms, read 2 ms\nend\n");
        assert_eq!(
            page(Some(20), |page| page.prose(text, 9)),
            "time     open 1 ms,\n         read 2 ms\nend\n"
        );
    }

    #[test]
    fn a_word_longer_than_the_terminal_is_left_whole() {
        assert_eq!(page(Some(6), |page| page.prose("abc defghijk l", 2)), "abc\n  defghijk\n  l\n");
    }

    #[test]
    fn control_characters_are_escaped_wherever_they_are_written() {
        let name = "a\u{1b}[31m\r\u{9b}2J\u{202e}b";
        let safe = r"a\u{1b}[31m\r\u{9b}2J\u{202e}b";
        assert_eq!(page(None, |page| page.line(name)), format!("{safe}\n"));
        assert_eq!(page(None, |page| page.prose(name, 0)), format!("{safe}\n"));
        let rows = std::iter::once([name.to_owned(), "x".to_owned()]);
        assert_eq!(page(None, |page| page.table(0, [Align::Left; 2], rows)), format!("{safe}  x\n"));
    }

    #[test]
    fn other_characters_stay_as_they_are() {
        for name in ["model.層.é", "e\u{301}", r#"C:\x "quoted" 'b'"#, ""] {
            assert_eq!(escaped(name), name);
        }
    }

    #[test]
    fn json_has_escapes_that_stand_for_the_same_text() {
        let text = "a\u{1b}\n\"\u{9b}\u{202e}\u{e0001}b層\u{7f}";
        let mut out = Vec::new();
        text.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Escaping)).unwrap();
        let json = String::from_utf8(out).unwrap();
        assert_eq!(json, r#""a\u001b\n\"\u009b\u202e\udb40\udc01b層\u007f""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn json_that_is_passed_on_keeps_its_white_space() {
        let raw: Box<serde_json::value::RawValue> =
            serde_json::from_str("{\n\t\"\u{9b}\": 1e400\r}").unwrap();
        let mut out = Vec::new();
        raw.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Escaping)).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "{\n\t\"\\u009b\": 1e400\r}");
    }
}
