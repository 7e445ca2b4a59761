//! An object store that keeps the sizes of objects and not their bytes.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use crate::failure::{During, Failure};
use crate::http1::{Head, Messages};

/// The only bucket.
pub(crate) const BUCKET: &str = "bench";

/// A running store.
#[derive(Clone, Debug)]
pub(crate) struct StoreSink {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    delay_ms: AtomicU64,
    objects: Mutex<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    /// Sizes by path.
    stored: HashMap<String, u64>,
    /// Sizes so far by id of the multipart upload.
    uploads: HashMap<String, u64>,
    last_upload: u64,
}

impl StoreSink {
    /// Starts it.
    pub(crate) fn start(listener: TcpListener) -> Result<Self, Failure> {
        let address = listener.local_addr().during(|| "the store's listener".into())?;
        let sink = Self { address, state: Arc::default() };
        let state = Arc::clone(&sink.state);
        super::serve(listener, move |stream| {
            // A client that goes away in the middle is noticed by the load that it belongs to.
            let _ = state.serve(&stream);
        });
        Ok(sink)
    }

    /// Lets every answer come so much later, as one from another building does.
    pub(crate) fn set_delay(&self, delay: Duration) {
        self.state.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Size of the object under a key, which is forgotten.
    pub(crate) fn take(&self, key: &str) -> Option<u64> {
        self.state.objects().stored.remove(&format!("/{BUCKET}/{key}"))
    }
}

/// What a request asks for, as the S3 API lays it out.
#[derive(Debug, PartialEq, Eq)]
enum Operation<'a> {
    HeadBucket,
    ListMultipartUploads,
    PutObject { path: &'a str },
    DeleteObject { path: &'a str },
    CreateMultipartUpload { path: &'a str },
    UploadPart { upload: &'a str },
    CompleteMultipartUpload { path: &'a str, upload: &'a str },
    AbortMultipartUpload { upload: &'a str },
}

impl<'a> Operation<'a> {
    fn of(request_line: &'a str) -> Option<Self> {
        let mut words = request_line.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let upload = query.split('&').find_map(|pair| pair.strip_prefix("uploadId="));
        let creates = query.split('&').any(|pair| pair.split('=').next() == Some("uploads"));
        let of_bucket = path.trim_start_matches('/').split_once('/').is_none_or(|(_, key)| key.is_empty());
        Some(match (method, of_bucket, upload) {
            ("HEAD", true, None) => Self::HeadBucket,
            ("GET", true, None) if creates => Self::ListMultipartUploads,
            ("PUT", false, None) => Self::PutObject { path },
            ("PUT", false, Some(upload)) => Self::UploadPart { upload },
            ("POST", false, None) if creates => Self::CreateMultipartUpload { path },
            ("POST", false, Some(upload)) => Self::CompleteMultipartUpload { path, upload },
            ("DELETE", false, None) => Self::DeleteObject { path },
            ("DELETE", false, Some(upload)) => Self::AbortMultipartUpload { upload },
            _ => return None,
        })
    }
}

const ETAG: &str = "0123456789abcdef0123456789abcdef";

impl State {
    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().expect("nobody panics while holding it")
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut requests = Messages::of(stream);
        while let Some(head) = requests.head()? {
            if head.field("expect").is_some() {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            requests.skip(head.length("content-length").unwrap_or(0))?;
            let delay = self.delay_ms.load(Ordering::Relaxed);
            if delay > 0 {
                thread::sleep(Duration::from_millis(delay));
            }
            stream.write_all(self.answer(&head).as_bytes())?;
        }
        Ok(())
    }

    fn answer(&self, head: &Head) -> String {
        // Bodies with a trailing checksum are longer than what they carry.
        let size = head.length("x-amz-decoded-content-length").or_else(|| head.length("content-length")).unwrap_or(0);
        let Some(operation) = Operation::of(&head.line) else {
            eprintln!("bench: the store was asked for something else: {}", head.line);
            return response("501 Not Implemented", "", "");
        };
        let etag = format!("ETag: \"{ETAG}\"\r\n");
        match operation {
            Operation::HeadBucket => response("200 OK", "", ""),
            Operation::ListMultipartUploads => {
                document("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>")
            }
            Operation::PutObject { path } => {
                self.objects().stored.insert(path.to_owned(), size);
                response("200 OK", &etag, "")
            }
            Operation::DeleteObject { path } => {
                self.objects().stored.remove(path);
                response("204 No Content", "", "")
            }
            Operation::CreateMultipartUpload { path } => {
                let mut objects = self.objects();
                objects.last_upload += 1;
                let upload = format!("upload-{}", objects.last_upload);
                objects.uploads.insert(upload.clone(), 0);
                let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
                document(&format!(
                    "<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{key}</Key>\
                     <UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            Operation::UploadPart { upload } => match self.objects().uploads.get_mut(upload) {
                Some(so_far) => {
                    *so_far += size;
                    response("200 OK", &etag, "")
                }
                None => no_such_upload(),
            },
            Operation::CompleteMultipartUpload { path, upload } => {
                let mut objects = self.objects();
                match objects.uploads.remove(upload) {
                    Some(size) => {
                        objects.stored.insert(path.to_owned(), size);
                        document(&format!(
                            "<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><ETag>\"{ETAG}-1\"</ETag>\
                             </CompleteMultipartUploadResult>"
                        ))
                    }
                    None => no_such_upload(),
                }
            }
            Operation::AbortMultipartUpload { upload } => {
                self.objects().uploads.remove(upload);
                response("204 No Content", "", "")
            }
        }
    }
}

fn no_such_upload() -> String {
    response("404 Not Found", "Content-Type: application/xml\r\n", "<Error><Code>NoSuchUpload</Code></Error>")
}

fn document(content: &str) -> String {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{content}");
    response("200 OK", "Content-Type: application/xml\r\n", &body)
}

fn response(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nx-amz-request-id: bench\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{Body, HttpClient};

    #[test]
    fn operations_of_the_api() {
        let of = |line| Operation::of(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(of("HEAD /bench HTTP/1.1"), Operation::HeadBucket);
        assert_eq!(of("HEAD /bench/?x-id=HeadBucket HTTP/1.1"), Operation::HeadBucket);
        assert_eq!(of("GET /bench/?uploads HTTP/1.1"), Operation::ListMultipartUploads);
        assert_eq!(of("PUT /bench/a/b?x-id=PutObject HTTP/1.1"), Operation::PutObject { path: "/bench/a/b" });
        assert_eq!(of("POST /bench/k?uploads HTTP/1.1"), Operation::CreateMultipartUpload { path: "/bench/k" });
        assert_eq!(of("PUT /bench/k?partNumber=1&uploadId=u HTTP/1.1"), Operation::UploadPart { upload: "u" });
        let complete = Operation::CompleteMultipartUpload { path: "/bench/k", upload: "u" };
        assert_eq!(of("POST /bench/k?uploadId=u HTTP/1.1"), complete);
        assert_eq!(of("DELETE /bench/k?uploadId=u HTTP/1.1"), Operation::AbortMultipartUpload { upload: "u" });
        assert_eq!(of("DELETE /bench/k HTTP/1.1"), Operation::DeleteObject { path: "/bench/k" });
        assert_eq!(Operation::of("PATCH /bench/k HTTP/1.1"), None);
    }

    #[test]
    fn sizes_are_kept_of_puts_and_of_parts() {
        let store = StoreSink::start(TcpListener::bind("127.0.0.1:0").expect("a free port")).expect("it starts");
        let mut client = HttpClient::connect(store.address).expect("it listens");
        client.ask("PUT", "/bench/whole", "", Body::Repeated(b"x", 1000)).expect("stored");
        assert_eq!((store.take("whole"), store.take("whole")), (Some(1000), None));

        let created = client.ask("POST", "/bench/parts?uploads", "", Body::Bytes(b"")).expect("created");
        let created = String::from_utf8(created).expect("text");
        let upload = created.split_once("<UploadId>").and_then(|(_, rest)| rest.split_once('<')).expect("an id").0;
        for part in 1..=2 {
            let path = format!("/bench/parts?partNumber={part}&uploadId={upload}");
            client.ask("PUT", &path, "", Body::Bytes(b"12345")).expect("stored");
        }
        assert_eq!(store.take("parts"), None);
        client.ask("POST", &format!("/bench/parts?uploadId={upload}"), "", Body::Bytes(b"<x/>")).expect("completed");
        assert_eq!(store.take("parts"), Some(10));
        assert!(client.ask("PUT", "/bench/parts?partNumber=3&uploadId=gone", "", Body::Bytes(b"1")).is_err());
    }
}
