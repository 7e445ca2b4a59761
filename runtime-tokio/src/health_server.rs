//! `/readyz` and `/livez` of the process: ready when every shard is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpStream;

use crate::door::Place;
use crate::http_connection::{self, ConnectionState};
use crate::process::ShardHandle;
use crate::settings::HttpServerSettings;
use crate::tasks::spawn_local;

/// Serves one connection on a task of its own.
pub(crate) fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    limits: HttpServerSettings,
    shards: &Rc<Vec<ShardHandle>>,
    place: Place,
) {
    let shards = Rc::clone(shards);
    spawn_local(async move {
        let state = Rc::new(ConnectionState::new(limits));
        let service = service_fn(|request: Request<Incoming>| {
            let shards = Rc::clone(&shards);
            let state = Rc::clone(&state);
            state.serving();
            async move {
                let (head, _) = request.into_parts();
                let answer = ask(&shards, head, peer).await;
                state.served();
                Ok::<_, Infallible>(answer)
            }
        });
        http_connection::serve(stream, peer, &state, service).await;
        drop(place);
    });
}

/// The first answer that is not 200 counts, else that of the last shard.
async fn ask(shards: &[ShardHandle], head: http::request::Parts, peer: SocketAddr) -> Response<Full<Bytes>> {
    let answers: Vec<_> = shards.iter().map(|shard| shard.health(head.clone(), peer)).collect();
    let mut last = None;
    for answer in answers {
        let Some((head, bytes)) = answer.await else {
            // A shard that does not answer is going down.
            let mut gone = Response::new(Full::new(Bytes::from_static(b"shutting down\n")));
            *gone.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return gone;
        };
        let ok = head.status == StatusCode::OK;
        last = Some(Response::from_parts(head, Full::new(bytes)));
        if !ok {
            break;
        }
    }
    last.unwrap_or_default()
}
