//! Addresses behind the names of brokers.
//!
//! The system's resolver is asked anew for every connection, so a broker that moved is found at its new address. It holds a
//! worker thread until it gives up, long after the dial was given up, and the threads are few: files, and
//! digests that S3 alone wants, need them, too. So dials of the same broker share one question while it is open, and only some questions are open at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::net::lookup_host;
use tokio::sync::{Semaphore, oneshot};

use crate::process::WORKERS;
use crate::tasks::spawn_local;

/// Questions that are open at once.
const OPEN: usize = WORKERS / 2;

/// What a name stands for, or why that is not known.
type Answer = Result<Vec<SocketAddr>, String>;

/// The questions of one shard.
pub(crate) struct Names {
    ask: Box<dyn Fn(String) -> Asking>,
    open: Arc<Semaphore>,
    waiting: RefCell<HashMap<String, Vec<oneshot::Sender<Answer>>>>,
}

type Asking = std::pin::Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

impl Names {
    /// Asks the system.
    pub(crate) fn of_system() -> Self {
        Self::new(|address| async move { lookup_host(address).await.map(Iterator::collect) })
    }

    fn new<F: Future<Output = io::Result<Vec<SocketAddr>>> + 'static>(ask: impl Fn(String) -> F + 'static) -> Self {
        let ask = Box::new(move |address| Box::pin(ask(address)) as Asking);
        Self { ask, open: Arc::new(Semaphore::new(OPEN)), waiting: RefCell::default() }
    }

    /// The addresses of a `host:port`. Whoever does not wait any more leaves the question open for others.
    pub(crate) async fn resolve(self: &Rc<Self>, address: &str) -> Answer {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        let (tell, told) = oneshot::channel();
        if self.wait(address, tell) {
            let (names, address) = (Rc::clone(self), address.to_owned());
            spawn_local(async move { names.find_out(address).await });
        }
        told.await.unwrap_or_else(|_| Err("the shard ends".to_owned()))
    }

    /// Says whether nobody asks yet.
    fn wait(&self, address: &str, tell: oneshot::Sender<Answer>) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let dials = waiting.entry(address.to_owned()).or_default();
        dials.push(tell);
        dials.len() == 1
    }

    async fn find_out(&self, address: String) {
        let permit = self.open.acquire().await;
        let answer = match (self.ask)(address.clone()).await {
            Ok(addresses) if addresses.is_empty() => Err("the name has no address".to_owned()),
            Ok(addresses) => Ok(addresses),
            Err(error) => Err(error.to_string()),
        };
        drop(permit);
        for waiting in self.waiting.borrow_mut().remove(&address).unwrap_or_default() {
            // Whoever has given up hears nothing.
            let _ = waiting.send(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    /// A resolver that takes its time, and how many questions it has got and are open.
    fn slow() -> (Rc<Names>, Rc<Cell<(usize, usize)>>) {
        let asked = Rc::new(Cell::new((0, 0)));
        let count = Rc::clone(&asked);
        let names = Names::new(move |address: String| {
            let count = Rc::clone(&count);
            async move {
                count.set((count.get().0 + 1, count.get().1 + 1));
                tokio::time::sleep(Duration::from_millis(200)).await;
                count.set((count.get().0, count.get().1 - 1));
                if address.starts_with("nobody") {
                    return Err(io::Error::other("no such host"));
                }
                Ok(vec![SocketAddr::from(([127, 0, 0, 1], 9092))])
            }
        });
        (Rc::new(names), asked)
    }

    #[test]
    fn addresses_are_not_asked_for() {
        run(async {
            let (names, asked) = slow();
            for address in ["127.0.0.1:9092", "[::1]:9092"] {
                assert_eq!(names.resolve(address).await, Ok(vec![address.parse().unwrap()]));
            }
            assert_eq!(asked.get(), (0, 0));
        });
    }

    #[test]
    fn dials_of_one_broker_share_a_question_and_the_next_asks_anew() {
        run(async {
            let (names, asked) = slow();
            for round in 1..=2 {
                let dials: Vec<_> = (0..20)
                    .map(|_| {
                        let names = Rc::clone(&names);
                        spawn_local(async move { names.resolve("broker:9092").await })
                    })
                    .collect();
                for dial in dials {
                    assert!(dial.await.unwrap().is_ok());
                }
                assert_eq!(asked.get(), (round, 0));
            }
            assert_eq!(names.resolve("nobody:9092").await, Err("no such host".to_owned()));
            assert!(names.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn a_resolver_that_hangs_holds_no_more_than_its_share_of_the_workers() {
        run(async {
            let (names, asked) = slow();
            let dial = |number: usize| {
                let names = Rc::clone(&names);
                spawn_local(async move { names.resolve(&format!("broker-{number}:9092")).await })
            };
            let dials: Vec<_> = (0..OPEN + 2).map(dial).collect();
            for _ in 0..10 {
                yield_now().await;
            }
            // Given up: its question stays open, for the thread is taken.
            dials[0].abort();
            assert_eq!(asked.get(), (OPEN, OPEN));
            for dial in dials.into_iter().skip(1) {
                assert!(dial.await.unwrap().is_ok());
            }
            assert_eq!(asked.get(), (OPEN + 2, 0));
        });
    }
}
