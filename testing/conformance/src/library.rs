//! A file of the client library, as a subject of the suite.

use crate::Subject;
use std::sync::Arc;
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{FileId, LayoutSpec};
use weir_wire::capability::Rights;

/// A file of the client library.
pub struct LibraryFile {
    client: Arc<Client>,
    file: Option<File>,
    id: FileId,
}

impl LibraryFile {
    /// Makes an empty file in the root directory, replacing an existing one.
    pub fn create(client: Arc<Client>, name: &str, layout: LayoutSpec) -> Result<Self, String> {
        let ctx = Context::root();
        if client.lookup(&ctx, FileId::ROOT, name.as_bytes()).is_ok() {
            client.unlink(&ctx, FileId::ROOT, name.as_bytes()).map_err(|e| e.to_string())?;
        }
        let options =
            CreateOptions { layout: Some(layout), exclusive: true, ..CreateOptions::default() };
        let (file, attr) = client
            .create(&ctx, FileId::ROOT, name.as_bytes(), &options)
            .map_err(|e| e.to_string())?;
        Ok(Self { client, id: attr.file, file: Some(file) })
    }

    /// The open file.
    pub fn file(&self) -> Result<&File, String> {
        self.file.as_ref().ok_or_else(|| "the file is closed".to_string())
    }
}

impl Subject for LibraryFile {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        self.file()?.write_at(&Context::root(), offset, data).map_err(|e| e.to_string())
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, String> {
        let mut data = vec![0xee; len];
        let n =
            self.file()?.read_at(&Context::root(), offset, &mut data).map_err(|e| e.to_string())?;
        data.truncate(n);
        Ok(data)
    }

    fn truncate(&mut self, len: u64) -> Result<(), String> {
        self.file()?.truncate(&Context::root(), len).map(drop).map_err(|e| e.to_string())
    }

    fn punch(&mut self, offset: u64, len: u64) -> Result<(), String> {
        self.file()?.punch(&Context::root(), offset, len).map_err(|e| e.to_string())
    }

    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        let done = self.file()?.allocate(&Context::root(), offset, len, keep_size);
        done.map_err(|e| e.to_string())
    }

    fn zero(&mut self, offset: u64, len: u64, keep_size: bool) -> Result<(), String> {
        let done = self.file()?.zero(&Context::root(), offset, len, keep_size);
        done.map_err(|e| e.to_string())
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, String> {
        self.file()?.next_data(&Context::root(), offset).map_err(|e| e.to_string())
    }

    fn next_hole(&mut self, offset: u64) -> Result<Option<u64>, String> {
        self.file()?.next_hole(&Context::root(), offset).map_err(|e| e.to_string())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.file()?.sync(&Context::root()).map_err(|e| e.to_string())
    }

    fn size(&mut self) -> Result<u64, String> {
        let attr = self.client.getattr(&Context::root(), self.id).map_err(|e| e.to_string())?;
        Ok(attr.size)
    }

    fn reopen(&mut self) -> Result<(), String> {
        let ctx = Context::root();
        if let Some(file) = self.file.take() {
            file.close(&ctx).map_err(|e| e.to_string())?;
        }
        let (file, _) =
            self.client.open(&ctx, self.id, Rights::READ_WRITE).map_err(|e| e.to_string())?;
        self.file = Some(file);
        Ok(())
    }
}
