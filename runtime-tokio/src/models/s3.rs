//! The model of S3 for one peer in the same thread; the bytes lie in files of a folder.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use kafscale_proxy_core::model::Link;
use kafscale_proxy_core::model::s3::{BlobId, Effect, Input as Fact, S3Model, Settings, Token};
use kafscale_proxy_core::{Input, OperationId, effects, inputs};
use tokio::task::spawn_blocking;

use crate::report::Report;
use crate::tasks::spawn_local;

/// One store with one bucket.
pub(crate) struct S3Server {
    model: RefCell<S3Model>,
    folder: PathBuf,
    report: Report,
}

impl S3Server {
    /// A store whose bucket is empty.
    pub(crate) fn new(folder: &Path, report: Report) -> Rc<Self> {
        let model = RefCell::new(S3Model::with_bucket(Settings::default()));
        Rc::new(Self { model, folder: folder.to_owned(), report })
    }

    /// Carries out one order.
    pub(crate) fn carry_out(self: &Rc<Self>, order: effects::S3) {
        match order {
            effects::S3::Request { operation, request } => {
                self.tell(Fact::Requested { token: Token(operation.0), link: Link::default(), request });
            }
            effects::S3::ReadObject { operation, object, max_bytes } => {
                self.tell(Fact::ReadRequested { token: Token(operation.0), object: Token(object.0), max_bytes });
            }
            effects::S3::ReleaseObject { object } => self.tell(Fact::Released { object: Token(object.0) }),
            // Everything is done as soon as the disk has done it.
            effects::S3::Cancel { .. } => {}
        }
    }

    fn tell(self: &Rc<Self>, fact: Fact) {
        let mut orders = Vec::new();
        self.model.borrow_mut().handle_input(fact, &mut orders);
        for order in orders {
            match order {
                Effect::StoreBlob { blob, body } => {
                    let path = self.path(blob);
                    self.on_disk(move || store(&path, &body), move |result| Fact::BlobStored { blob, result });
                }
                Effect::LoadBlob { token, blob, offset, length } => {
                    let path = self.path(blob);
                    self.on_disk(move || load(&path, offset, length), move |result| Fact::BlobLoaded { token, result });
                }
                Effect::RemoveBlob { blob } => {
                    let path = self.path(blob);
                    spawn_blocking(move || {
                        if let Err(error) = std::fs::remove_file(path) {
                            tracing::warn!(%error, "a file of the store could not be removed");
                        }
                    });
                }
                Effect::Finished { token, reply } => {
                    let operation = OperationId(token.0);
                    self.report.tell(Input::S3(inputs::S3::Finished { operation, outcome: reply.outcome }));
                }
                Effect::ObjectRead { token, result } => {
                    let operation = OperationId(token.0);
                    self.report.tell(Input::S3(inputs::S3::ObjectRead { operation, result }));
                }
            }
        }
    }

    fn on_disk<T: Send + 'static>(
        self: &Rc<Self>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
        fact: impl FnOnce(std::result::Result<T, String>) -> Fact + 'static,
    ) {
        let this = Rc::clone(self);
        spawn_local(async move {
            let result = match spawn_blocking(work).await {
                Ok(result) => result.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            this.tell(fact(result));
        });
    }

    fn path(&self, blob: BlobId) -> PathBuf {
        self.folder.join(format!("blob-{}", blob.0))
    }
}

fn store(path: &Path, body: &[Bytes]) -> Result<()> {
    let mut file = File::create(path)?;
    body.iter().try_for_each(|bytes| file.write_all(bytes))
}

fn load(path: &Path, offset: u64, length: usize) -> Result<Bytes> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes)?;
    Ok(bytes.into())
}
