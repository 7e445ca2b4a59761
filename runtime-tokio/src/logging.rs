//! Log lines: text on standard output, `key=value`.
//!
//! Whoever can connect can cause lines. So of each kind of line, which is a place in the code, only some are written in a
//! time; how many were left out is said with the next one. Lines that name an object in the bucket are never left out:
//! nothing else tells of an orphan.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::registry::LookupSpan;

/// What the libraries below us may say at the usual level: their own troubles come back as outcomes and are logged by us.
const LIBRARIES: &str = "aws_config=warn,aws_sdk_s3=warn,hyper=warn,hyper_util=warn,h2=warn,tonic=warn,tower=warn";
/// Lines of one kind in one [`WINDOW`].
const LINES: u64 = 20;
/// After so long a kind may be written again.
const WINDOW: Duration = Duration::from_secs(10);
/// Fields that name an object in the bucket.
const OBJECTS: [&str; 2] = ["object", "key"];

/// Starts logging with a filter such as `info` or `info,kafscale_proxy_core=debug`.
///
/// # Errors
/// The filter cannot be understood.
pub fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(format!("{LIBRARIES},{filter}")).map_err(|error| error.to_string())?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stdout().is_terminal())
        .event_format(Limited::default())
        .try_init()
        .map_err(|error| error.to_string())
}

/// Writes events as lines, and not too many of one kind.
struct Limited {
    format: Format<Full>,
    kinds: Mutex<HashMap<Identifier, Kind>>,
}

impl Default for Limited {
    fn default() -> Self {
        Self { format: tracing_subscriber::fmt::format().with_target(false), kinds: Mutex::default() }
    }
}

/// Lines of one kind since a window began.
#[derive(Clone, Copy, Debug)]
struct Kind {
    since: Instant,
    lines: u64,
}

impl Kind {
    /// Whether a line may be written; with how many of the window before were not, when a new one begins.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let mut left_out = 0;
        if now.duration_since(self.since) >= WINDOW {
            left_out = self.lines.saturating_sub(LINES);
            *self = Self { since: now, lines: 0 };
        }
        self.lines += 1;
        (self.lines <= LINES).then_some(left_out)
    }
}

/// Whether lines of this kind may be left out. Whoever asks for more than the usual gets all of it.
fn is_limited(metadata: &Metadata<'_>) -> bool {
    let names_object = || OBJECTS.iter().any(|name| metadata.fields().field(name).is_some());
    *metadata.level() <= Level::INFO && !names_object()
}

impl<S, N> FormatEvent<S, N> for Limited
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        if is_limited(metadata) {
            let now = Instant::now();
            let admitted = {
                // A thread that panicked in between has left a number that is right or one too low.
                let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
                let kind = kinds.entry(metadata.callsite()).or_insert(Kind { since: now, lines: 0 });
                kind.admit(now)
            };
            match admitted {
                None => return Ok(()),
                Some(0) => {}
                Some(left_out) => writeln!(writer, "{left_out} lines like the next one were left out")?,
            }
        }
        self.format.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn so_many_lines_in_a_time_and_then_the_number_of_the_others() {
        let start = Instant::now();
        let mut kind = Kind { since: start, lines: 0 };
        assert!((0..LINES).all(|_| kind.admit(start) == Some(0)));
        assert!((0..7).all(|_| kind.admit(start + Duration::from_secs(9)).is_none()));
        assert_eq!(kind.admit(start + WINDOW), Some(7));
        assert_eq!(kind.admit(start + WINDOW), Some(0));
        assert_eq!(kind.admit(start + WINDOW * 9), Some(0));
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_flood_is_cut_and_orphans_are_not() {
        let written = Written::default();
        let sink = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("trace"))
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .event_format(Limited::default())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..100 {
                tracing::warn!(number, "flood");
                tracing::warn!(object = "key", number, "orphan");
                tracing::debug!(number, "asked for");
            }
            tracing::warn!("another kind");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(count("flood"), usize::try_from(LINES).unwrap());
        assert_eq!([count("orphan"), count("asked for"), count("another kind")], [100, 100, 1]);
    }
}
