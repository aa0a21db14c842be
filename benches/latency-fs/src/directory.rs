//! The files of one directory, as they were when it was opened.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request,
};

use crate::delay::{Counts, Delay};
use crate::options::Options;

/// How long the kernel may believe what it was told of a file: nothing changes.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The number of the first file; the directory has the one before.
const FIRST: u64 = INodeNo::ROOT.0 + 1;

/// A directory that is served.
#[derive(Debug)]
pub(crate) struct Directory {
    attr: FileAttr,
    files: Vec<Served>,
    delay: Delay,
    request_bytes: u32,
    background: u16,
}

#[derive(Debug)]
struct Served {
    name: OsString,
    attr: FileAttr,
    file: Arc<File>,
}

impl Directory {
    pub(crate) fn open(options: &Options, counts: &Counts) -> Result<Self> {
        let source = &options.source;
        let context = || format!("cannot serve {}", source.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(source).with_context(context)? {
            let path = entry?.path();
            let metadata = fs::metadata(&path).with_context(context)?;
            if let (true, Some(name)) = (metadata.is_file(), path.file_name()) {
                let file = Arc::new(File::open(&path).with_context(context)?);
                let number = FIRST + files.len() as u64;
                files.push(Served {
                    name: name.to_owned(),
                    attr: attr(number, FileType::RegularFile, &metadata),
                    file,
                });
            }
        }
        Ok(Self {
            attr: attr(INodeNo::ROOT.0, FileType::Directory, &fs::metadata(source).with_context(context)?),
            files,
            delay: Delay::new(options.delay, options.bytes_per_second, counts),
            request_bytes: options.request_bytes,
            background: options.background,
        })
    }

    fn file(&self, number: INodeNo) -> Option<&Served> {
        self.files.get(usize::try_from(number.0.checked_sub(FIRST)?).ok()?)
    }
}

impl Filesystem for Directory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let refused = |nearest: u32| std::io::Error::other(format!("the kernel would take {nearest}"));
        // The most that is read at once goes by the most that could be written.
        config.set_max_write(self.request_bytes).map_err(refused)?;
        config.set_max_background(self.background).map_err(|nearest| refused(nearest.into()))?;
        // As libfuse has it; older kernels do without.
        let _unknown = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.files.iter().find(|file| parent == INodeNo::ROOT && file.name == name) {
            Some(file) => reply.entry(&FOREVER, &file.attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let file = self.file(number).map(|file| &file.attr);
        match file.or((number == INodeNo::ROOT).then_some(&self.attr)) {
            Some(attr) => reply.attr(&FOREVER, attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.file(number) {
            Some(served) => self.delay.answer(&served.file, offset, bytes, reply),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let own = [".", ".."].map(|name| (&self.attr, OsStr::new(name)));
        let entries =
            own.into_iter().chain(self.files.iter().map(|file| (&file.attr, file.name.as_os_str())));
        for (place, (attr, name)) in (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(attr.ino, place, attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

fn attr(number: u64, kind: FileType, metadata: &Metadata) -> FileAttr {
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    FileAttr {
        ino: INodeNo(number),
        size: metadata.size(),
        blocks: metadata.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind,
        perm: if kind == FileType::Directory { 0o555 } else { 0o444 },
        nlink: 1,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
