//! A patch's text as sections, one for each file. What stands before, between and after them, as in a mail or in a
//! model's talk, is passed over; what looks like a part of a hunk never is.

use super::{
    Problem,
    hunk::{self, Hunk},
    names::{self, Named},
    reader::Reader,
};
use crate::error::{Error, Result};

/// Most sections of a patch.
const MAX_SECTIONS: usize = 500;

/// What a patch does to one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section<'a> {
    /// Number of its first line in the patch.
    pub(super) line: usize,
    pub(super) action: Action,
    /// Whether to set or clear the execute bits.
    pub(super) executable: Option<bool>,
    pub(super) hunks: Vec<Hunk<'a>>,
}

/// What is done with which file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Modify(Vec<u8>),
    /// Modifies that of the two which exists.
    ModifyEither(Vec<u8>, Vec<u8>),
    Create(Vec<u8>),
    Delete(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>),
    Copy(Vec<u8>, Vec<u8>),
}

impl Action {
    /// Every name in it.
    pub(super) fn names(&self) -> Vec<&[u8]> {
        match self {
            Self::Modify(name) | Self::Create(name) | Self::Delete(name) => vec![name],
            Self::ModifyEither(old, new) | Self::Rename(old, new) | Self::Copy(old, new) => vec![old, new],
        }
    }
}

/// What the lines before a section's hunks say.
#[derive(Debug, Default)]
struct Header {
    line: usize,
    git: bool,
    pair: Option<(Vec<u8>, Vec<u8>)>,
    old: Option<Named>,
    new: Option<Named>,
    created: bool,
    deleted: bool,
    old_mode: Option<u32>,
    new_mode: Option<u32>,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    copied: bool,
}

/// The sections of a patch. Fails with [`Error::PatchInvalid`], which names the line.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Section<'_>>> {
    sections(text).map_err(|(line, problem)| Error::PatchInvalid { line, problem: problem.into_owned() })
}

type Parsed<T> = std::result::Result<T, (usize, Problem)>;

fn sections(text: &[u8]) -> Parsed<Vec<Section<'_>>> {
    let mut reader = Reader::new(text);
    let mut sections = Vec::new();
    // Whether the line before belongs to the patch: then what looks like a part of it must be one.
    let mut within = false;
    while let Some(line) = reader.peek() {
        let number = reader.number();
        if line.starts_with(b"diff --git ") || reader.at_file_header() {
            sections.push(section(&mut reader)?);
            if sections.len() > MAX_SECTIONS {
                let problem = format!("more than {MAX_SECTIONS} files; apply the patch in parts");
                return Err((number, problem.into()));
            }
            within = true;
            continue;
        }
        refuse_binary(&reader, None)?;
        if line.starts_with(b"@@") {
            let problem = "a hunk without a file; expected the lines --- a/path and +++ b/path before it";
            return Err((number, problem.into()));
        }
        if line.starts_with(b"```") || line.starts_with(b"From ") || reader.at_signature() {
            within = false;
        } else if within && matches!(line, [b'+' | b'-', ..]) {
            let problem = "looks like a line of a hunk, but is not part of one; expected @@ or the next file";
            return Err((number, problem.into()));
        }
        reader.take();
    }
    if sections.is_empty() {
        let problem = "nothing to apply; expected a unified diff: --- a/path, +++ b/path, @@ -1,3 +1,4 @@ and \
                       lines that start with a space, + or -";
        return Err((1, problem.into()));
    }
    Ok(sections)
}

fn section<'a>(reader: &mut Reader<'a>) -> Parsed<Section<'a>> {
    let header = Header::read(reader)?;
    let mut hunks = Vec::new();
    loop {
        let mut ahead = reader.clone();
        while ahead.peek().is_some_and(|line| line.trim_ascii().is_empty()) {
            ahead.take();
        }
        if !ahead.peek().is_some_and(|line| line.starts_with(b"@@")) {
            break;
        }
        *reader = ahead;
        hunks.push(hunk::read(reader)?);
    }
    let line = header.line;
    header.finish(hunks).map_err(|problem| (line, problem))
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut header = Self { line: reader.number(), ..Self::default() };
        if let Some(rest) = reader.after("diff --git ") {
            header.git = true;
            header.pair = names::pair(rest);
            reader.take();
            while !reader.at_file_header() && header.take_extended(reader)? {
                reader.take();
            }
            refuse_binary(reader, header.pair.as_ref().map(|(_, new)| new.as_slice()))?;
        }
        if reader.at_file_header() {
            let mut after = reader.clone();
            let old = header_name(&mut after, "--- ")?;
            let new = header_name(&mut after, "+++ ")?;
            if header.is_of(&old, &new) {
                (header.old, header.new) = (Some(old), Some(new));
                *reader = after;
            } else if header.old_mode.or(header.new_mode).is_none() && header.from.is_none() {
                let problem = "names another file than the line diff --git before it";
                return Err((reader.number(), problem.into()));
            }
        }
        Ok(header)
    }

    /// Notes what the next line says, if it is one of git's extended headers.
    fn take_extended(&mut self, reader: &Reader<'_>) -> Parsed<bool> {
        let failed = |problem: Problem| (reader.number(), problem);
        let read_mode = |text| mode(text).map(Some).map_err(failed);
        let read_name = |text| names::whole(text).map(Some).map_err(failed);
        if let Some(text) = reader.after("old mode ") {
            self.old_mode = read_mode(text)?;
        } else if let Some(text) = reader.after("new mode ") {
            self.new_mode = read_mode(text)?;
        } else if let Some(text) = reader.after("new file mode ") {
            (self.created, self.new_mode) = (true, read_mode(text)?);
        } else if let Some(text) = reader.after("deleted file mode ") {
            (self.deleted, self.old_mode) = (true, read_mode(text)?);
        } else if let Some(text) = reader.after("rename from ") {
            self.from = read_name(text)?;
        } else if let Some(text) = reader.after("rename to ") {
            self.to = read_name(text)?;
        } else if let Some(text) = reader.after("copy from ") {
            (self.copied, self.from) = (true, read_name(text)?);
        } else if let Some(text) = reader.after("copy to ") {
            (self.copied, self.to) = (true, read_name(text)?);
        } else if let Some(text) = reader.after("index ") {
            if let Some(at) = memchr::memchr(b' ', text) {
                mode(&text[at + 1..]).map_err(failed)?;
            }
        } else {
            return Ok(["similarity index ", "dissimilarity index "]
                .iter()
                .any(|prefix| reader.after(prefix).is_some()));
        }
        Ok(true)
    }

    /// Whether these names are of the same section, not of one that follows it.
    fn is_of(&self, old: &Named, new: &Named) -> bool {
        let (from, to) = match (&self.from, &self.to, &self.pair) {
            (Some(from), Some(to), _) => (from.clone(), to.clone()),
            (_, _, Some((old, new))) => names::strip(old.clone(), new.clone(), true),
            _ => return true,
        };
        match (&old.name, &new.name) {
            (Some(old), Some(new)) => names::strip(old.clone(), new.clone(), true) == (from, to),
            (Some(old), None) => names::strip_one(old, b"a/") == from || *old == from,
            (None, Some(new)) => names::strip_one(new, b"b/") == to || *new == to,
            (None, None) => true,
        }
    }

    fn finish(self, hunks: Vec<Hunk<'_>>) -> std::result::Result<Section<'_>, Problem> {
        let bit = |mode: Option<u32>| mode.map(|mode| mode & 0o100 != 0);
        let (old, new) = (bit(self.old_mode), bit(self.new_mode));
        let executable = if self.created { new.filter(|set| *set) } else { new.filter(|_| new != old) };
        let line = self.line;
        let action = self.action(&hunks)?;
        let changes_mode = executable.is_some();
        match &action {
            Action::Modify(_) | Action::ModifyEither(..) if hunks.is_empty() && !changes_mode => {
                return Err("the file has neither hunks nor a change of its name or mode; expected @@".into());
            }
            Action::Create(_) if hunks.len() > 1 => return Err("a new file has one hunk".into()),
            Action::Create(_) if hunks.iter().any(|hunk| hunk.old_lines().next().is_some()) => {
                return Err("a new file has only lines that start with +".into());
            }
            Action::Delete(_) if hunks.iter().any(|hunk| hunk.new_lines().next().is_some()) => {
                return Err("a deleted file has only lines that start with -".into());
            }
            _ => {}
        }
        Ok(Section { line, action, executable, hunks })
    }

    fn action(self, hunks: &[Hunk<'_>]) -> std::result::Result<Action, Problem> {
        let Self { git, pair, old, new, created, deleted, from, to, copied, .. } = self;
        if from.is_some() || to.is_some() {
            let (Some(from), Some(to)) = (from, to) else {
                return Err("expected both lines of a rename or copy: from and to".into());
            };
            return Ok(if copied { Action::Copy(from, to) } else { Action::Rename(from, to) });
        }
        let (old, new) = match (old, new) {
            (Some(old), Some(new)) => (old, new),
            _ => {
                let (old, new) =
                    pair.ok_or("expected the lines --- a/path and +++ b/path, or rename from and rename to")?;
                let named = |name| Named { name: Some(name), absent: false };
                (named(old), named(new))
            }
        };
        let (created, deleted) = (
            created || (old.absent && matches!(hunks, [hunk] if hunk.starts_a_file())),
            deleted || (new.absent && matches!(hunks, [hunk] if hunk.ends_a_file())),
        );
        let (old, new) = match (old.name, new.name) {
            (None, None) => return Err("expected a name beside /dev/null".into()),
            (None, Some(new)) => return Ok(Action::Create(names::strip_one(&new, b"b/"))),
            (Some(old), None) => return Ok(Action::Delete(names::strip_one(&old, b"a/"))),
            (Some(old), Some(new)) => (old, new),
        };
        let prefixed = old.starts_with(b"a/") && new.starts_with(b"b/");
        let (old, new) = names::strip(old, new, git);
        if created {
            Ok(Action::Create(new))
        } else if deleted {
            Ok(Action::Delete(old))
        } else if old == new {
            Ok(Action::Modify(old))
        } else if git || prefixed {
            Err("the names differ; a rename needs the lines diff --git, rename from and rename to".into())
        } else {
            Ok(Action::ModifyEither(old, new))
        }
    }
}

/// The name in the next line, which starts with `prefix`.
fn header_name(reader: &mut Reader<'_>, prefix: &str) -> Parsed<Named> {
    let number = reader.number();
    let name = names::named(reader.after(prefix).unwrap_or_default()).map_err(|problem| (number, problem))?;
    reader.take();
    Ok(name)
}

/// The mode of a regular file.
fn mode(text: &[u8]) -> std::result::Result<u32, Problem> {
    let mode = std::str::from_utf8(text).ok().and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    match mode {
        Some(0o120_000) => Err("symbolic links can't be patched; run_command can make them: ln -s".into()),
        Some(0o160_000) => Err("submodules can't be patched".into()),
        Some(mode) if mode & 0o170_000 == 0o100_000 => Ok(mode),
        _ => Err("expected the mode of a file: 100644 or 100755".into()),
    }
}

fn refuse_binary(reader: &Reader<'_>, name: Option<&[u8]>) -> Parsed<()> {
    let text = reader.after("Binary files ").and_then(|text| text.strip_suffix(b" differ"));
    let git = reader.after("GIT binary patch").is_some();
    let name = match (text, name) {
        (None, _) if !git => return Ok(()),
        (_, Some(name)) => super::show(names::strip_one(name, b"b/").as_slice()),
        (Some(text), None) => super::show(text),
        (None, None) => "a file".to_owned(),
    };
    let problem = format!("{name} is binary: such patches can't be applied; write_file takes it in base64");
    Err((reader.number(), problem.into()))
}
