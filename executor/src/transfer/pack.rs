//! How entries stand in a tar or a zip file. Names are written byte by byte as they are; times and modes are kept,
//! owners are not. It refuses to know where entries come from.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};
use time::{OffsetDateTime, PrimitiveDateTime};
use zip::write::{ExtendedFileOptions, FileOptions, StreamWriter};
use zip::{CompressionMethod, ZipWriter};

use super::archive::Format;
use super::sink::{Filled, Sink, unwrapped};
use crate::error::{Error, Result};
use crate::file::{Meta, show};

const ACTION: &str = "writing an archive";

/// A middle way between time and size.
const LEVEL: u32 = 3;

const BUFFER_BYTES: usize = 64 << 10;

/// Entries of a zip file at most: its table of contents is kept in memory until the end.
const ZIP_ENTRIES: u64 = 100_000;

/// Size from which on a zip file needs its larger form.
const ZIP64_BYTES: u64 = 0xffff_ffff - (1 << 20);

/// An archive that is being written.
pub(super) struct Packer {
    writer: Writer,
    entries: u64,
}

enum Writer {
    Tar(Box<tar::Builder<GzEncoder<BufWriter<Sink>>>>),
    Zip(Box<ZipWriter<StreamWriter<BufWriter<Sink>>>>, u64),
}

impl Packer {
    pub(super) fn new(format: Format, sink: Sink) -> Self {
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, sink);
        let writer = match format {
            Format::TarGz => {
                let compressed = GzEncoder::new(buffered, Compression::new(LEVEL));
                Writer::Tar(Box::new(tar::Builder::new(compressed)))
            }
            Format::Zip => Writer::Zip(Box::new(ZipWriter::new_stream(buffered)), 0),
        };
        Self { writer, entries: 0 }
    }

    /// Entries so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of the archive so far.
    pub(super) fn written(&self) -> u64 {
        match &self.writer {
            Writer::Tar(tar) => tar.get_ref().get_ref().get_ref().written(),
            Writer::Zip(_, written) => *written,
        }
    }

    pub(super) fn directory(&mut self, name: &[u8], meta: &Meta) -> Result<()> {
        self.count()?;
        let name = [name, b"/"].concat();
        match &mut self.writer {
            Writer::Tar(tar) => {
                let mut header = header(EntryType::Directory, meta);
                append(tar, &mut header, &name, io::empty())
            }
            Writer::Zip(zip, _) => {
                let options = stored(meta)?;
                let attributes = ((meta.mode & 0o7777) << 16) | DOS_DIRECTORY;
                match String::from_utf8(name) {
                    Ok(name) => {
                        let options = options.external_attributes((DIRECTORY << 16) | attributes);
                        zip.add_directory(name, options).map_err(of_zip)
                    }
                    // The library takes such a name for a file's only. The slash at its end makes it a directory.
                    Err(name) => start(zip, name.as_bytes(), options.external_attributes(attributes)),
                }
            }
        }
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8], meta: &Meta) -> Result<()> {
        self.count()?;
        match &mut self.writer {
            Writer::Tar(tar) => {
                let mut header = header(EntryType::Symlink, meta);
                let field = &mut header.as_old_mut().linkname;
                if target.len() > field.len() {
                    append_long(tar, EntryType::GNULongLink, target)?;
                }
                let kept = target.len().min(field.len());
                header.as_old_mut().linkname[..kept].copy_from_slice(&target[..kept]);
                append(tar, &mut header, name, io::empty())
            }
            Writer::Zip(zip, _) => {
                let options = stored(meta)?;
                start(zip, name, options.external_attributes((SYMLINK | 0o777) << 16))?;
                zip.write_all(target).map_err(|error| unwrapped(ACTION, error))
            }
        }
    }

    /// Packs a file. False when it has become shorter meanwhile; then it ends with zeros.
    pub(super) fn file(&mut self, name: &[u8], file: &File, meta: &Meta) -> Result<bool> {
        self.count()?;
        let mut content = Padded { file, left: meta.size, ended: false };
        match &mut self.writer {
            Writer::Tar(tar) => {
                let mut header = header(EntryType::Regular, meta);
                header.set_size(meta.size);
                append(tar, &mut header, name, &mut content)?;
            }
            Writer::Zip(zip, written) => {
                let options = options(meta)?.large_file(meta.size >= ZIP64_BYTES);
                start(zip, name, options.external_attributes((REGULAR | meta.mode & 0o7777) << 16))?;
                let copied = io::copy(&mut content, zip).map_err(|error| unwrapped(ACTION, error))?;
                *written += copied;
            }
        }
        Ok(!content.ended)
    }

    pub(super) fn finish(self) -> Result<Filled> {
        let failed = |error| unwrapped(ACTION, error);
        let buffered = match self.writer {
            Writer::Tar(tar) => tar.into_inner().and_then(GzEncoder::finish).map_err(failed)?,
            Writer::Zip(zip, _) => zip.finish().map_err(of_zip)?.into_inner(),
        };
        buffered.into_inner().map_err(|error| failed(error.into_error()))?.finish()
    }

    fn count(&mut self) -> Result<()> {
        self.entries += 1;
        if matches!(self.writer, Writer::Zip(..)) && self.entries > ZIP_ENTRIES {
            let problem = format!("a zip file takes {ZIP_ENTRIES} entries at most; use tar.gz");
            return Err(Error::invalid("archive", problem));
        }
        Ok(())
    }
}

/// Kinds of files, as the upper half of a zip file's attributes has them.
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// The lower half of those of a directory.
const DOS_DIRECTORY: u32 = 0x10;

fn header(kind: EntryType, meta: &Meta) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header.set_mtime(u64::try_from(meta.modified.0).unwrap_or(0));
    header
}

/// Appends an entry whose name is written as it is, with an entry of its own before it if it is long.
fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    header: &mut Header,
    name: &[u8],
    content: impl Read,
) -> Result<()> {
    let field = &mut header.as_old_mut().name;
    if name.len() > field.len() {
        append_long(tar, EntryType::GNULongName, name)?;
    }
    let kept = name.len().min(field.len());
    field[..kept].copy_from_slice(&name[..kept]);
    header.set_cksum();
    tar.append(header, content).map_err(|error| unwrapped(ACTION, error))
}

fn append_long<W: Write>(tar: &mut tar::Builder<W>, kind: EntryType, text: &[u8]) -> Result<()> {
    let mut header = Header::new_gnu();
    let name = b"././@LongLink";
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(u64::try_from(text.len() + 1).unwrap_or(u64::MAX));
    header.set_cksum();
    tar.append(&header, text.chain(&b"\0"[..])).map_err(|error| unwrapped(ACTION, error))
}

type Options<'n> = FileOptions<'static, 'n, ExtendedFileOptions>;

fn options(meta: &Meta) -> Result<Options<'static>> {
    let mut options = Options::default().compression_level(Some(i64::from(LEVEL)));
    let seconds = meta.modified.0;
    if let Ok(seconds) = u32::try_from(seconds) {
        options = options.with_extended_timestamp(Some(seconds), None, None).map_err(of_zip)?;
    }
    // The older field knows years from 1980 to 2107.
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let time = zip::DateTime::try_from(PrimitiveDateTime::new(time.date(), time.time()));
    Ok(options.last_modified_time(time.unwrap_or_default()))
}

fn stored(meta: &Meta) -> Result<Options<'static>> {
    Ok(options(meta)?.compression_method(CompressionMethod::Stored).compression_level(None))
}

fn start<W: Write>(zip: &mut ZipWriter<StreamWriter<W>>, name: &[u8], options: Options<'_>) -> Result<()> {
    zip.start_file_with_options(options.name(name)).map_err(|error| match error {
        zip::result::ZipError::Io(error) => unwrapped(ACTION, error),
        // Such as a name of more than 64 KiB.
        error => {
            Error::invalid("archive", format!("{} can't be in a zip file ({error}); use tar.gz", show(name)))
        }
    })
}

fn of_zip(error: zip::result::ZipError) -> Error {
    match error {
        zip::result::ZipError::Io(error) => unwrapped(ACTION, error),
        error => Error::internal(ACTION, error),
    }
}

/// As many bytes of a file as its entry says, whatever becomes of the file.
struct Padded<'a> {
    file: &'a File,
    left: u64,
    ended: bool,
}

impl Read for Padded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..room];
        let mut read = if self.ended { 0 } else { self.file.read(buffer)? };
        if read == 0 && room > 0 {
            self.ended = true;
            buffer.fill(0);
            read = room;
        }
        self.left -= u64::try_from(read).unwrap_or(0);
        Ok(read)
    }
}
