//! An S3 server with real signatures, files as objects, and faults on the way to it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The bucket, there from the start.
pub const BUCKET: &str = "peer-bucket";
/// Bytes of a body after which [`Fault::PauseReading`] pauses: less than the buffers on the way hold of a large one.
const PAUSE_AFTER: usize = 64 * 1024;
/// Credentials that are accepted.
pub(super) const ACCESS_KEY: &str = "peer-access-key";
/// Credentials that are accepted.
pub(super) const SECRET_KEY: &str = "peer-secret-key";

/// What a request asks for, told from its method and query as the S3 API lays them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // The names of the API.
pub enum Operation {
    HeadBucket,
    CreateBucket,
    ListMultipartUploads,
    PutObject,
    GetObject,
    HeadObject,
    DeleteObject,
    CreateMultipartUpload,
    UploadPart,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    Other,
}

impl Operation {
    fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path().trim_start_matches('/');
        let query = request.uri().query().unwrap_or_default();
        let asks = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        let of_bucket = path.split_once('/').is_none_or(|(_, key)| key.is_empty());
        match (request.method(), of_bucket) {
            (&Method::HEAD, true) => Self::HeadBucket,
            (&Method::PUT, true) => Self::CreateBucket,
            (&Method::GET, true) if asks("uploads") => Self::ListMultipartUploads,
            (&Method::HEAD, false) => Self::HeadObject,
            (&Method::GET, false) => Self::GetObject,
            (&Method::PUT, false) if asks("uploadId") => Self::UploadPart,
            (&Method::PUT, false) => Self::PutObject,
            (&Method::POST, false) if asks("uploads") => Self::CreateMultipartUpload,
            (&Method::POST, false) if asks("uploadId") => Self::CompleteMultipartUpload,
            (&Method::DELETE, false) if asks("uploadId") => Self::AbortMultipartUpload,
            (&Method::DELETE, false) => Self::DeleteObject,
            _ => Self::Other,
        }
    }
}

/// What happens to a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answered with this status and not carried out.
    Refuse(u16),
    /// Carried out so much later.
    Delay(Duration),
    /// The first 64 KiB of its body are read, and the rest so much later.
    PauseReading(Duration),
    /// The connection breaks before it is carried out.
    CutBefore,
    /// It is carried out, then the connection breaks.
    CutAfter,
}

/// A request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it asked for.
    pub operation: Operation,
    /// Object key, empty for those of the bucket.
    pub key: String,
    /// Status of the answer; `None` while it is not known, and when the connection was cut.
    pub status: Option<u16>,
}

#[derive(Debug, Default)]
struct State {
    // Faults still to come, the next one last.
    faults: BTreeMap<Operation, Vec<Fault>>,
    seen: Vec<Seen>,
}

/// The server. It ends with this value.
#[derive(Debug)]
pub struct Store {
    endpoint: String,
    folder: TempDir,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

impl Store {
    /// Starts it with an empty bucket.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder can be written");
        fs::create_dir(folder.path().join(BUCKET)).expect("a new folder can be written");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(folder.path()).expect("the folder is there"));
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback interface has a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let state = Arc::new(Mutex::new(State::default()));
        let server = tokio::spawn(serve(listener, service, Arc::clone(&state)));
        Self { endpoint, folder, state, server }
    }

    /// Its URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Lets the next requests of this kind meet these faults, one each; later ones are served again.
    pub fn inject(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        let mut faults: Vec<Fault> = faults.into_iter().collect();
        faults.reverse();
        self.state().faults.insert(operation, faults);
    }

    /// The requests so far, as they came.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// How often an operation was asked for.
    pub fn count(&self, operation: Operation) -> usize {
        self.state().seen.iter().filter(|seen| seen.operation == operation).count()
    }

    /// Keys of all objects, ascending.
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.folder.path().join(BUCKET);
        let mut keys = Vec::new();
        walk(&bucket, &mut |file| {
            let key = file.strip_prefix(&bucket).expect("it lies below the bucket").to_string_lossy().into_owned();
            // The server keeps attributes and parts in files with a dot in front.
            if !key.split('/').any(|segment| segment.starts_with('.')) {
                keys.push(key);
            }
        });
        keys.sort();
        keys
    }

    /// What it keeps of multipart uploads that were neither completed nor aborted: a note of each, and their parts.
    pub fn left_of_uploads(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("the folder is there").flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(".upload-") || name.starts_with(".upload_id-")).collect()
    }

    /// File with the bytes of an object.
    pub fn file(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// Bytes of an object.
    ///
    /// # Panics
    /// When there is none.
    pub fn object(&self, key: &str) -> Bytes {
        fs::read(self.file(key)).unwrap_or_else(|error| panic!("no object {key}: {error}")).into()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nobody panics while holding it")
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { walk(&path, visit) } else { visit(&path) }
    }
}

async fn serve(listener: TcpListener, service: S3Service, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (service, state) = (service.clone(), Arc::clone(&state));
        let answer = service_fn(move |request| answer(service.clone(), Arc::clone(&state), request));
        tokio::spawn(async move {
            // A connection that breaks is what some tests are about.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    service: S3Service,
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> io::Result<Response<s3s::Body>> {
    let operation = Operation::of(&request);
    let key = request.uri().path().trim_start_matches('/').split_once('/').map(|(_, key)| key.to_owned());
    let (number, fault) = {
        let mut state = lock(&state);
        state.seen.push(Seen { operation, key: key.unwrap_or_default(), status: None });
        (state.seen.len() - 1, state.faults.get_mut(&operation).and_then(Vec::pop))
    };
    let cut = || io::Error::from(io::ErrorKind::ConnectionReset);
    match fault {
        Some(Fault::CutBefore) => return Err(cut()),
        Some(Fault::Refuse(status)) => {
            lock(&state).seen[number].status = Some(status);
            let body = "<?xml version=\"1.0\"?><Error><Code>Injected</Code><Message>injected</Message></Error>";
            let response = Response::builder().status(status).header("content-type", "application/xml");
            return response.body(s3s::Body::from(body.to_owned())).map_err(io::Error::other);
        }
        Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
        Some(Fault::CutAfter | Fault::PauseReading(_)) | None => {}
    }
    let request = match fault {
        Some(Fault::PauseReading(pause)) => read_with_pause(request, pause).await?,
        Some(Fault::CutBefore | Fault::Refuse(_) | Fault::Delay(_) | Fault::CutAfter) | None => {
            request.map(s3s::Body::from)
        }
    };
    let response = service.call(request).await.map_err(|error| io::Error::other(format!("{error:?}")))?;
    if fault == Some(Fault::CutAfter) {
        return Err(cut());
    }
    lock(&state).seen[number].status = Some(response.status().as_u16());
    Ok(response)
}

/// Reads all of a request before it is carried out, as slowly as [`Fault::PauseReading`] says.
async fn read_with_pause(request: Request<Incoming>, pause: Duration) -> io::Result<Request<s3s::Body>> {
    let (head, mut body) = request.into_parts();
    let mut bytes = BytesMut::new();
    let mut paused = false;
    while let Some(frame) = body.frame().await {
        bytes.extend(frame.map_err(io::Error::other)?.into_data().into_iter().flatten());
        if bytes.len() >= PAUSE_AFTER && !std::mem::replace(&mut paused, true) {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(Request::from_parts(head, s3s::Body::from(bytes.freeze())))
}
