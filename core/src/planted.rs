//! Bugs planted on purpose, so that the simulator can be held to finding them.
//!
//! Each one is a mistake that was made in the field: by the Go proxy whose place this one takes, or by proxies and
//! clients of the same kind. A simulator that finds no planted bug proves nothing, so `tests/simulate --mutant NAME`
//! plants one and must come back with a seed that breaks an invariant; docs/simulation.md lists what was found how.
//!
//! The switches exist only in builds with `--cfg planted_bugs` (in `RUSTFLAGS`, in a target folder of its own). It is no
//! Cargo feature, because features are united over a workspace and would leak into builds that are shipped. In every
//! other build `planted` is `false` at compile time and nothing of this module is left.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal,)+) => {
        /// One planted bug: what it does, and where the field had it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// Its name on the command line and in docs/simulation.md.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

bugs! {
    // --- what is known of the cluster ---

    /// What was read of etcd once is used without an end. The Go proxy's LFS path fell back to a broker list that never
    /// expired, and its listener used routes and connections however old they were.
    CacheNeverExpires = "cache-never-expires",
    /// A snapshot without brokers leaves the old list in use, as if etcd could not be read. The Go proxy's first
    /// discovery for the LFS path.
    EmptyListKept = "empty-list-kept",
    /// A read of the snapshot that failed moves the freshness clock. The Go proxy only logged the error, so its TTL never
    /// applied during an outage.
    FailedReadIsFresh = "failed-read-is-fresh",
    /// The freshness clock moves to the time of the answer instead of that of the order, so an answer that hung in a
    /// socket makes old knowledge young. Common in caches.
    ClockAtAnswer = "clock-at-answer",
    /// Routes are as fresh as the snapshot, however long nothing was proven of the leases. The Go proxy used partition
    /// routes while its watch was down.
    LeaseProofIgnored = "lease-proof-ignored",
    /// `/readyz` goes on saying ready when etcd cannot be read any more. The Go proxy never called `setReady(false)`.
    ReadyForEver = "ready-for-ever",
    /// A lease whose key was deleted stays a route until the next full reading. Watch loops that handle puts only.
    DeletedLeaseIgnored = "deleted-lease-ignored",
    /// A watch begins now instead of right after the read before it: what changed in between is never told. The classic
    /// mistake with etcd.
    WatchFromNow = "watch-from-now",

    /// The first page of a prefix counts as all of it, so owners on later pages are not known. Readers that set a limit
    /// and have no look at what is left.
    FirstPageIsAll = "first-page-is-all",

    /// A lost watch leaves what was read as something to compare with: "nothing newer" and the same count are proof enough, also
    /// of an etcd that was restored from a backup and has grown since. Caches that take revisions for the identity of a store.
    RestoredStoreIsSame = "restored-store-is-same",

    /// A block of producer ids whose reservation got no answer is used all the same, as if a request that is lost had
    /// always been carried out. Allocators that move on after a time-out.
    UnprovenBlockUsed = "unproven-block-used",

    // --- connections to brokers ---

    /// An I/O error after a request was handed over counts as not applied, so it is sent again. The Go proxy answered
    /// REQUEST_TIMED_OUT to it and tried another broker.
    LostIsNotApplied = "lost-is-not-applied",
    /// The correlation id of an answer is not compared with that of the request. Proxies that count answers instead.
    CorrelationUnchecked = "correlation-unchecked",

    /// A field that the broker's version of a request cannot carry is left out in silence. Translators that encode whatever
    /// the older layout has room for.
    FieldLostInTranslation = "field-lost-in-translation",
    /// The answer to a request that was put into another version goes back as it came. Proxies that translate requests and
    /// forget that answers have versions, too.
    AnswerInAnotherVersion = "answer-in-another-version",
    /// A batch that was put into another version and refused is said once more on the same connection, behind what was
    /// sent since. Translators that retry by themselves and know nothing of order.
    TranslatedRetryReordered = "translated-retry-reordered",

    // --- the Kafka listener ---

    /// Batches that come while an earlier one is being sent again go out at once and overtake it: the fan-out of most
    /// proxies, which keep no order per partition.
    ParkedOvertaken = "parked-overtaken",
    /// A refused batch is sent again although a later one was accepted: retries without a look at what was pipelined
    /// behind, as in producers with several requests in flight and no idempotence.
    ResentAfterLater = "resent-after-later",
    /// Requests with acks 0 get an answer, which the client takes for that of its next request.
    AcksZeroAnswered = "acks-zero-answered",
    /// Answers leave as they come instead of in request order. Proxies that serve requests concurrently.
    AnswersOutOfOrder = "answers-out-of-order",
    /// The merged answer to a Produce lacks the first partition of each topic. Fan-outs that collect what was answered
    /// instead of what was asked for.
    PartitionLeftOut = "partition-left-out",
    /// Null record sets of Fetch answers reach the client. KafScale brokers send them for empty partitions, and librdkafka
    /// complains about each.
    NullRecordsPassed = "null-records-passed",
    /// What a broker says of the current leader in its answers reaches the client, which then goes there. Proxies that
    /// pass tagged fields on (KIP-951).
    HintLetThrough = "hint-let-through",
    /// While a group settles the proxy joins again with the member id that its client had, so each try leaves a member
    /// behind that gets partitions and reads none. Clients of KafScale that join anew after REBALANCE_IN_PROGRESS.
    MemberIdLost = "member-id-lost",

    /// A batch that waits to be sent again is forgotten when its partition is gone by then: its client waits for ever. Retries
    /// that leave an item out once it leads nowhere.
    AbsentBatchForgotten = "absent-batch-forgotten",
    /// A client that goes with half a large request keeps the memory that it held, until nobody has any. Budgets that
    /// are given back where the request ends and nowhere else.
    FrameNeverReleased = "frame-never-released",
    /// A client that goes keeps the room of its small requests. As above, for requests that nobody waits to read.
    SmallRequestNeverReleased = "small-request-never-released",
    /// Whoever asks for memory for a large request gets it. Budgets that are counted and not enforced.
    FramesUnbounded = "frames-unbounded",
    /// A large answer keeps its memory when it is of no use any more. As above, for what brokers send.
    AnswerNeverReleased = "answer-never-released",
    /// Whoever holds a large answer gets room for all others that it has in flight, however far behind. Budgets that exempt
    /// the one who makes progress.
    LaterAnswersUnbounded = "later-answers-unbounded",
    /// No timer watches a request that does not become whole. Servers that read a frame to its end and set no deadline.
    HalfFrameForgotten = "half-frame-forgotten",
    /// A client that takes none of its answers is kept for ever, with all that it holds. Servers that only pause, and trust
    /// in keep-alive probes, which a closed window answers.
    UnreadAnswersKept = "unread-answers-kept",

    // --- blobs and their records ---

    /// Nobody looks at the topic again after the upload, so the record of a body for a topic that was deleted meanwhile makes a
    /// new one of its name. The Go proxy before it knew generations.
    TopicChangeUnnoticed = "topic-change-unnoticed",
    /// A topic that was made anew is the same as long as it has its name. Clients and proxies that know topics by name only.
    RecreatedTopicIsSame = "recreated-topic-is-same",
    /// A topic whose settings were written for the first time counts as another one, and its uploads are refused.
    ConfiguredTopicIsAnother = "configured-topic-is-another",
    /// The blob of an upload whose topic has changed stays as an orphan, although its record was never sent.
    ChangedTopicBlobKept = "changed-topic-blob-kept",
    /// The upload begins before any broker is known or connected, and the blob has to be deleted again. The Go proxy
    /// uploaded first.
    UploadBeforeBroker = "upload-before-broker",
    /// After the upload the record is sent over the connection from before it without another look at the TTL. The Go
    /// proxy only looked at the socket.
    TtlUncheckedAfterUpload = "ttl-unchecked-after-upload",
    /// A connection that was closed during the upload counts as an ambiguous produce, and the blob stays as an orphan. The Go
    /// proxy wrote to the dead socket.
    ClosedLinkUnnoticed = "closed-link-unnoticed",
    /// A record that is given up, because its client has left or its answer takes too long, gives its connection back for the
    /// next upload, which takes that answer for its own. Pools of connections whose requests can be cancelled.
    UnansweredLinkKept = "unanswered-link-kept",
    /// The record goes to the brokers in turn, whoever owns the partition. The Go proxy's LFS path before it learned of
    /// routes.
    RoundRobin = "round-robin",
    /// The connection from before the upload is used although the partition has another owner by now. The Go proxy reused
    /// any idle connection.
    OldOwnerAsked = "old-owner-asked",
    /// After a refusal the same broker may be asked again: the list of those that were tried is made anew for each try, as
    /// in the Go proxy.
    SameBrokerAgain = "same-broker-again",
    /// The wait before another try goes on for a client that has gone, and the record is written for nobody. The Go proxy
    /// slept without a look at the request's context.
    RetryForNobody = "retry-for-nobody",
    /// The error code of a Produce answer is not read, and an envelope that was refused is reported as success. The Go
    /// proxy's completion of uploads.
    ErrorCodeIgnored = "error-code-ignored",
    /// A blob whose record was refused for certain stays as an orphan. The Go proxy kept it after NOT_LEADER_OR_FOLLOWER.
    RefusedBlobKept = "refused-blob-kept",
    /// A blob whose record may have been written is deleted: the worst of them all, for the record then refers to nothing.
    AmbiguousBlobDeleted = "ambiguous-blob-deleted",
    /// What a body with the wrong checksum left in the bucket stays there, uncounted. The Go proxy aborted an upload that was
    /// complete already.
    MismatchLeft = "mismatch-left",
    /// A body that broke off without a known length counts as whole. HTTP servers that tell both ends of a body alike.
    CutBodyIsWhole = "cut-body-is-whole",
    /// What came while earlier bytes were being hashed elsewhere is not hashed when the body ends in that moment, so the digest is
    /// that of its beginning. Pipelines that are drained up to a threshold and not flushed at their end.
    LateBytesUnhashed = "late-bytes-unhashed",
    /// A PutObject without an answer counts as one that stored nothing, so its object is neither deleted nor counted. S3
    /// clients whose time-outs look like refusals.
    UnknownPutForgotten = "unknown-put-forgotten",
    /// A removal that failed for the last time is not counted. The Go proxy lost the keys of a request's earlier blobs
    /// in the same way.
    FailedDeleteUncounted = "failed-delete-uncounted",
    /// What could not be removed in a few tries is counted and never tried again, so each outage of S3 leaves something for
    /// ever. Uploaders of all kinds; aborts fail for the reason for which the upload failed.
    FailedDeleteForgotten = "failed-delete-forgotten",
    /// No timer watches a body that stops coming, so its upload hangs and holds its memory for ever.
    BodyTimerForgotten = "body-timer-forgotten",
    /// What is given up when the time for the end is over is not counted, so its blobs stay unseen. Servers whose end is a
    /// context that is cancelled.
    GivenUpUncounted = "given-up-uncounted",
    /// The end waits for what is in flight however long it takes, until somebody kills the process. Servers without a
    /// deadline for their shutdown.
    EndWaitsForEver = "end-waits-for-ever",
    /// `/readyz` says ready until the process is gone, and clients are sent to one that ends. Readiness that looks at the
    /// partners only.
    ReadyWhileEnding = "ready-while-ending",
    /// Every start draws the same keys, as with a fixed seed, and a later upload overwrites a blob that a record refers to.
    KeysRepeated = "keys-repeated",
}

impl Bug {
    /// The bug of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|bug| bug.name() == name)
    }
}

#[cfg(planted_bugs)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug, or none, in all machines of this thread: worlds on several threads do not disturb each other.
#[cfg(planted_bugs)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted.
#[cfg(planted_bugs)]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: never, in this build.
#[cfg(not(planted_bugs))]
#[inline]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        let names: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), Bug::ALL.len());
        for bug in Bug::ALL {
            assert_eq!(Bug::from_name(bug.name()), Some(*bug));
            assert!(bug.name().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{bug:?}");
        }
        assert_eq!(Bug::from_name("no-such-bug"), None);
    }

    #[test]
    fn the_page_lists_each_bug_once() {
        let page = include_str!("../../docs/simulation.md");
        for bug in Bug::ALL {
            assert_eq!(page.matches(&format!("| `{}` |", bug.name())).count(), 1, "{bug:?}");
        }
    }

    #[test]
    #[cfg(not(planted_bugs))]
    fn nothing_is_planted_in_a_normal_build() {
        assert!(!Bug::ALL.iter().any(|bug| planted(*bug)));
    }
}
