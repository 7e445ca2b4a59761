//! The leases under one prefix (etcd contract section 3): who holds which, and when that was proven.
//!
//! Three kinds of knowledge are kept apart, because each is true at another revision:
//!
//! - what was *listed*: the whole prefix as it was at one revision, moved forward by the events of the watch;
//! - *corrections* for single keys: a key that was read on its own after a refusal may be ahead of the watch, and a
//!   route that a broker refused is dropped until something newer than the drop is known;
//! - the moment for which the listing was *proven* to be what etcd holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::Source;
use super::freshness::Moment;
use crate::etcd::{KeyValue, Keys, RangeRequest, RangeResponse, Revision, WatchEvent};
use crate::planted::{Bug, planted};
use crate::time::Monotonic;

/// A lease prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Partitions,
    Groups,
}

impl Prefix {
    pub(super) const fn source(self) -> Source {
        match self {
            Self::Partitions => Source::PartitionLeases,
            Self::Groups => Source::GroupLeases,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Partitions => "/kafscale/partition-leases/",
            Self::Groups => "/kafscale/group-leases/",
        }
    }

    pub(super) fn keys(self) -> Keys {
        Keys::prefix(self.text())
    }

    /// What a key names; `None` for keys that are not of the contract's form and are ignored.
    ///
    /// The partition must be written as brokers write it: were `01` taken for 1, two keys could name one route.
    fn parse(self, key: &[u8]) -> Option<(&str, i32)> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(self.text())?;
        let (name, number) = match self {
            Self::Groups => (rest, 0),
            Self::Partitions => {
                let (topic, digits) = rest.rsplit_once('/')?;
                let partition: i32 = digits.parse().ok()?;
                if partition.to_string() != digits {
                    return None;
                }
                (topic, partition)
            }
        };
        (!name.is_empty()).then_some((name, number))
    }
}

/// The key of a partition's lease.
pub(super) fn partition_key(topic: &str, partition: i32) -> Bytes {
    format!("{}{topic}/{partition}", Prefix::Partitions.text()).into()
}

/// The key of a group's lease.
pub(super) fn group_key(group: &str) -> Bytes {
    format!("{}{group}", Prefix::Groups.text()).into()
}

/// The broker id in the value of a lease key; a value that is none names nobody.
pub(super) fn holder_in(value: &[u8]) -> Option<i32> {
    std::str::from_utf8(value).ok()?.trim_ascii().parse().ok()
}

/// All keys of a prefix at one revision.
#[derive(Debug)]
pub(super) struct Listed {
    prefix: Prefix,
    /// The listing is the state of etcd after this revision.
    revision: Revision,
    /// By topic and partition, or by group and 0. An entry with a holder of `None` has a value that names nobody.
    routes: HashMap<Box<str>, BTreeMap<i32, Option<i32>>>,
    route_count: usize,
    /// Keys of another form. They are remembered because etcd counts them too.
    ignored: BTreeSet<Bytes>,
}

impl Listed {
    pub(super) fn new(prefix: Prefix, revision: Revision) -> Self {
        Self { prefix, revision, routes: HashMap::new(), route_count: 0, ignored: BTreeSet::new() }
    }

    /// How many keys etcd must count.
    fn key_count(&self) -> usize {
        self.route_count + self.ignored.len()
    }

    pub(super) fn put(&mut self, kv: &KeyValue) {
        let Some((name, number)) = self.prefix.parse(&kv.key) else {
            self.ignored.insert(kv.key.clone());
            return;
        };
        let holder = holder_in(&kv.value);
        let before = match self.routes.get_mut(name) {
            Some(routes) => routes.insert(number, holder),
            None => self.routes.entry(name.into()).or_default().insert(number, holder),
        };
        self.route_count += usize::from(before.is_none());
    }

    fn delete(&mut self, key: &Bytes) {
        let Some((name, number)) = self.prefix.parse(key) else {
            self.ignored.remove(key);
            return;
        };
        let Some(routes) = self.routes.get_mut(name) else { return };
        self.route_count -= usize::from(routes.remove(&number).is_some());
        if routes.is_empty() {
            self.routes.remove(name);
        }
    }

    fn holder(&self, name: &str, number: i32) -> Option<i32> {
        *self.routes.get(name)?.get(&number)?
    }
}

/// Knowledge about one key beyond the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Correction {
    /// The call in which it was made.
    step: u64,
    /// Events of the watch up to this revision say nothing new.
    revision: Revision,
    kind: CorrectionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CorrectionKind {
    /// The key was read; proven for this moment.
    Read { ordered: Monotonic, holder: Option<i32> },
    /// A broker refused; nobody until something newer is known.
    Dropped,
}

/// What a proof is measured against: the listing when the proof was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expectation {
    revision: Revision,
    key_count: usize,
}

/// What the answer to a proof says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The listing is what etcd holds.
    Proven,
    /// It is not, or not provably: the watch lags, has died, or has moved it while the proof was under way.
    Behind,
    /// The store is at an older revision than the listing: it was replaced, and no watch will tell.
    Rewound,
}

/// The holder of a lease, and the moment for which that is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) broker: Option<i32>,
    pub(super) proven: Option<Monotonic>,
}

/// All that is known of one prefix.
pub(super) struct Leases {
    prefix: Prefix,
    listed: Option<Listed>,
    corrections: BTreeMap<Box<str>, BTreeMap<i32, Correction>>,
    proven: Option<Monotonic>,
}

impl Leases {
    pub(super) const fn new(prefix: Prefix) -> Self {
        Self { prefix, listed: None, corrections: BTreeMap::new(), proven: None }
    }

    pub(super) const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// The moment for which the listing is proven.
    pub(super) const fn proven(&self) -> Option<Monotonic> {
        self.proven
    }

    /// The first revision that the listing does not know.
    pub(super) fn next_revision(&self) -> Option<Revision> {
        self.listed.as_ref().map(|listed| listed.revision.saturating_add(1))
    }

    /// Who holds a lease. Groups have number 0.
    pub(super) fn holder(&self, name: &str, number: i32) -> Holder {
        let correction = self.corrections.get(name).and_then(|numbers| numbers.get(&number));
        match correction.map(|correction| correction.kind) {
            // A proof ordered after the read removes the correction, so whatever proof there is beside it has seen
            // an older state of the store than the read has.
            Some(CorrectionKind::Read { ordered, holder }) => {
                Holder { broker: holder, proven: self.proven.max(Some(ordered)) }
            }
            Some(CorrectionKind::Dropped) => Holder { broker: None, proven: self.proven },
            None => Holder {
                broker: self.listed.as_ref().and_then(|listed| listed.holder(name, number)),
                proven: self.proven,
            },
        }
    }

    /// Whether a route was dropped and nothing newer is known.
    pub(super) fn is_dropped(&self, name: &str, number: i32) -> bool {
        let correction = self.corrections.get(name).and_then(|numbers| numbers.get(&number));
        correction.is_some_and(|correction| correction.kind == CorrectionKind::Dropped)
    }

    /// Replaces the listing by one whose first page was `ordered` then.
    pub(super) fn on_listed(&mut self, listed: Listed, ordered: Moment) {
        self.settle_corrections(ordered, listed.revision);
        self.listed = Some(listed);
        self.proven = self.proven.max(Some(ordered.at));
    }

    /// The cheap proof: keys written after the listing, and the count of all.
    ///
    /// If no key is newer than the listing and the count is that of the listing, nothing was put (it would be newer)
    /// and nothing deleted (it would be missing from the count). One newer key is enough to know that there is one.
    /// This relies on the watch telling the changes of one revision together, as etcd does unless it is asked for fragments.
    pub(super) fn proof(&self) -> Option<(RangeRequest, Expectation)> {
        let listed = self.listed.as_ref()?;
        let request = RangeRequest {
            limit: 1,
            min_mod_revision: listed.revision.saturating_add(1),
            keys_only: true,
            ..RangeRequest::of(self.prefix.keys())
        };
        Some((request, Expectation { revision: listed.revision, key_count: listed.key_count() }))
    }

    /// Judges the answer to a proof; the clock moves to the moment of its order only when it holds.
    pub(super) fn on_proof(&mut self, expected: Expectation, ordered: Moment, answer: &RangeResponse) -> Verdict {
        let Some(listed) = &self.listed else { return Verdict::Behind };
        if answer.revision < expected.revision {
            return Verdict::Rewound;
        }
        // A listing that moved since the order may stand at a state in between, where a key exists that was deleted
        // again before the answer. Nor does it help that the watch has told changes beyond the answer: etcd may lose a
        // deletion for a watch that begins at the compacted revision, and go on (etcd issue 18089, seen with 3.4.23).
        let unmoved = listed.revision == expected.revision && answer.kvs.is_empty();
        if !unmoved || usize::try_from(answer.count) != Ok(expected.key_count) {
            return Verdict::Behind;
        }
        self.settle_corrections(ordered, answer.revision);
        self.proven = self.proven.max(Some(ordered.at));
        Verdict::Proven
    }

    /// Removes the corrections that a full reading or proof of the prefix, `ordered` then and served at `revision`,
    /// has overtaken.
    fn settle_corrections(&mut self, ordered: Moment, revision: Revision) {
        self.corrections.retain(|_, numbers| {
            numbers.retain(|_, correction| {
                let made_since = correction.step > ordered.step;
                match correction.kind {
                    CorrectionKind::Dropped => made_since,
                    CorrectionKind::Read { .. } => made_since && correction.revision > revision,
                }
            });
            !numbers.is_empty()
        });
    }

    /// Moves the listing forward. Events that it already contains change nothing.
    pub(super) fn on_events(&mut self, events: &[WatchEvent]) {
        let Some(listed) = &mut self.listed else { return };
        for event in events {
            let (key, revision) = match event {
                WatchEvent::Put(kv) => (&kv.key, kv.mod_revision),
                WatchEvent::Delete { key, mod_revision } => (key, *mod_revision),
            };
            // Several keys may change in one revision, and repeating the last one does no harm.
            if revision < listed.revision {
                continue;
            }
            listed.revision = revision;
            match event {
                WatchEvent::Put(kv) => listed.put(kv),
                WatchEvent::Delete { .. } if planted(Bug::DeletedLeaseIgnored) => {}
                WatchEvent::Delete { key, .. } => listed.delete(key),
            }
            if let Some((name, number)) = self.prefix.parse(key) {
                forget_correction(&mut self.corrections, name, number, |correction| revision > correction.revision);
            }
        }
    }

    /// A key was read on its own: `ordered` then, served at `revision`, held by `holder`.
    pub(super) fn on_key_read(
        &mut self,
        name: &str,
        number: i32,
        ordered: Moment,
        now: Moment,
        (revision, holder): (Revision, Option<i32>),
    ) {
        let before = self.corrections.get(name).and_then(|numbers| numbers.get(&number));
        if before.is_some_and(|before| before.kind == CorrectionKind::Dropped && before.step > ordered.step) {
            return;
        }
        let (revision, holder) = match &self.listed {
            Some(listed) if listed.revision >= revision => (listed.revision, listed.holder(name, number)),
            Some(_) | None => (revision, holder),
        };
        let kind = CorrectionKind::Read { ordered: ordered.at, holder };
        self.corrections.entry(name.into()).or_default().insert(number, Correction { step: now.step, revision, kind });
    }

    /// Drops a route that a broker refused. Where no holder is known, the broker was not asked because of a route.
    pub(super) fn drop_route(&mut self, name: &str, number: i32, step: u64) {
        if self.holder(name, number).broker.is_none() {
            return;
        }
        let before = self.corrections.get(name).and_then(|numbers| numbers.get(&number));
        let listed = self.listed.as_ref().map(|listed| listed.revision);
        let revision = before.map(|before| before.revision).max(listed).unwrap_or(0);
        let dropped = Correction { step, revision, kind: CorrectionKind::Dropped };
        self.corrections.entry(name.into()).or_default().insert(number, dropped);
    }
}

fn forget_correction(
    corrections: &mut BTreeMap<Box<str>, BTreeMap<i32, Correction>>,
    name: &str,
    number: i32,
    when: impl Fn(&Correction) -> bool,
) {
    let Some(numbers) = corrections.get_mut(name) else { return };
    if numbers.get(&number).is_some_and(when) {
        numbers.remove(&number);
    }
    if numbers.is_empty() {
        corrections.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(step: u64) -> Moment {
        Moment { at: Monotonic::from_millis(step * 1_000), step }
    }

    fn kv(key: &str, value: &str, revision: Revision) -> KeyValue {
        KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
            create_revision: revision,
            mod_revision: revision,
            lease: 7,
        }
    }

    fn put(partition: i32, broker: &str, revision: Revision) -> WatchEvent {
        WatchEvent::Put(kv(&format!("/kafscale/partition-leases/t/{partition}"), broker, revision))
    }

    fn delete(partition: i32, revision: Revision) -> WatchEvent {
        WatchEvent::Delete { key: partition_key("t", partition), mod_revision: revision }
    }

    /// `t/0` held by 1 and `t/1` by 2, listed at revision 10 by a read ordered in step 1.
    fn leases() -> Leases {
        let mut leases = Leases::new(Prefix::Partitions);
        let mut listed = Listed::new(Prefix::Partitions, 10);
        listed.put(&kv("/kafscale/partition-leases/t/0", "1", 5));
        listed.put(&kv("/kafscale/partition-leases/t/1", "2", 6));
        leases.on_listed(listed, moment(1));
        leases
    }

    fn broker(leases: &Leases, partition: i32) -> Option<i32> {
        leases.holder("t", partition).broker
    }

    fn answer(revision: Revision, newer: &[&str], count: i64) -> RangeResponse {
        let kvs = newer.iter().map(|key| kv(key, "", revision)).collect();
        RangeResponse { revision, kvs, count, more: false }
    }

    #[test]
    fn keys() {
        for (key, parsed) in [
            ("t/0", Some(("t", 0))),
            ("a/b/12", Some(("a/b", 12))),
            ("t/2147483647", Some(("t", i32::MAX))),
            ("t/2147483648", None),
            ("t/01", None),
            ("t/+1", None),
            ("t/", None),
            ("/0", None),
            ("0", None),
            ("t/x", None),
            ("", None),
        ] {
            assert_eq!(
                Prefix::Partitions.parse(format!("/kafscale/partition-leases/{key}").as_bytes()),
                parsed,
                "{key}"
            );
        }
        for (key, parsed) in [("g", Some(("g", 0))), ("a/b/", Some(("a/b/", 0))), ("/", Some(("/", 0))), ("", None)] {
            assert_eq!(Prefix::Groups.parse(format!("/kafscale/group-leases/{key}").as_bytes()), parsed, "{key}");
        }
        assert_eq!(Prefix::Groups.parse(b"/kafscale/group-leases/\xff"), None);
        assert_eq!(Prefix::Partitions.parse(&partition_key("a/b", 3)), Some(("a/b", 3)));
        assert_eq!(Prefix::Groups.parse(&group_key("a/b")), Some(("a/b", 0)));
    }

    #[test]
    fn values() {
        for (value, id) in [
            (&b"0"[..], Some(0)),
            (b"12", Some(12)),
            (b"-1", Some(-1)),
            (b"12\n", Some(12)),
            (b"", None),
            (b"x", None),
            (b"99999999999", None),
            (b"\xff", None),
        ] {
            assert_eq!(holder_in(value), id, "{value:?}");
        }
    }

    #[test]
    fn events_move_the_listing_and_old_ones_do_not() {
        let mut leases = leases();
        leases.on_events(&[put(0, "3", 11), delete(1, 12), put(2, "1", 12), delete(9, 13)]);
        assert_eq!([broker(&leases, 0), broker(&leases, 1), broker(&leases, 2)], [Some(3), None, Some(1)]);
        assert_eq!(leases.next_revision(), Some(14));
        leases.on_events(&[put(0, "1", 5), put(1, "2", 12)]);
        assert_eq!([broker(&leases, 0), broker(&leases, 1)], [Some(3), None], "older than what is known");
        leases.on_events(&[put(0, "nobody", 14)]);
        assert_eq!(broker(&leases, 0), None);
        assert_eq!(leases.listed.as_ref().unwrap().key_count(), 2);
    }

    #[test]
    fn ignored_keys_are_counted() {
        let mut leases = leases();
        let odd = "/kafscale/partition-leases/odd";
        leases.on_events(&[WatchEvent::Put(kv(odd, "1", 11)), WatchEvent::Put(kv(odd, "2", 12))]);
        assert_eq!(leases.proof().unwrap().1, Expectation { revision: 12, key_count: 3 });
        leases.on_events(&[WatchEvent::Delete { key: Bytes::from_static(odd.as_bytes()), mod_revision: 13 }]);
        assert_eq!(leases.proof().unwrap().1, Expectation { revision: 13, key_count: 2 });
    }

    #[test]
    fn proofs() {
        let key = "/kafscale/partition-leases/t/0";
        for (name, while_under_way, answer, verdict) in [
            ("nothing has moved", vec![], answer(10, &[], 2), Verdict::Proven),
            ("other keys of the store have moved", vec![], answer(99, &[], 2), Verdict::Proven),
            ("a deletion that was lost", vec![], answer(10, &[], 1), Verdict::Behind),
            ("a put that the watch has not told", vec![], answer(11, &[key], 2), Verdict::Behind),
            ("a deletion that the watch has not told", vec![], answer(11, &[], 1), Verdict::Behind),
            ("a deletion and a creation", vec![], answer(12, &[key], 2), Verdict::Behind),
            ("a store that was replaced", vec![], answer(9, &[], 2), Verdict::Rewound),
            ("a count that makes no sense", vec![], answer(11, &[], -1), Verdict::Behind),
            ("told up to the answer meanwhile", vec![put(0, "3", 11)], answer(11, &[key], 2), Verdict::Behind),
            ("told beyond the answer meanwhile", vec![delete(0, 12)], answer(11, &[], 2), Verdict::Behind),
            ("a state in between", vec![put(7, "3", 11)], answer(12, &[], 2), Verdict::Behind),
            ("told only in part", vec![put(0, "3", 11)], answer(12, &[key], 2), Verdict::Behind),
        ] {
            let mut leases = leases();
            let (request, expected) = leases.proof().unwrap();
            assert_eq!((request.min_mod_revision, request.limit, request.revision), (11, 1, 0));
            leases.on_events(&while_under_way);
            assert_eq!(leases.on_proof(expected, moment(5), &answer), verdict, "{name}");
            let clock = if verdict == Verdict::Proven { 5_000 } else { 1_000 };
            assert_eq!(leases.holder("t", 0).proven, Some(Monotonic::from_millis(clock)), "{name}");
        }
    }

    #[test]
    fn a_key_read_ahead_of_the_watch_stays_until_the_watch_has_passed_it() {
        let mut leases = leases();
        leases.on_key_read("t", 0, moment(3), moment(4), (15, Some(3)));
        leases.on_key_read("t", 1, moment(3), moment(4), (15, None));
        assert_eq!(leases.holder("t", 0), Holder { broker: Some(3), proven: Some(Monotonic::from_millis(3_000)) });
        leases.on_events(&[put(0, "8", 12), put(1, "8", 13), delete(1, 15)]);
        assert_eq!([broker(&leases, 0), broker(&leases, 1)], [Some(3), None]);
        leases.on_events(&[put(0, "4", 16), put(1, "4", 17)]);
        assert_eq!([broker(&leases, 0), broker(&leases, 1)], [Some(4), Some(4)]);
        assert!(leases.corrections.is_empty());
    }

    #[test]
    fn a_key_read_behind_the_watch_does_not_win() {
        let mut leases = leases();
        leases.on_events(&[put(0, "4", 16)]);
        leases.on_key_read("t", 0, moment(3), moment(4), (15, Some(3)));
        assert_eq!(leases.holder("t", 0), Holder { broker: Some(4), proven: Some(Monotonic::from_millis(3_000)) });
    }

    #[test]
    fn a_key_read_proves_its_own_key_only() {
        let mut leases = Leases::new(Prefix::Groups);
        leases.on_key_read("g", 0, moment(3), moment(4), (15, Some(3)));
        assert_eq!(leases.holder("g", 0), Holder { broker: Some(3), proven: Some(Monotonic::from_millis(3_000)) });
        assert_eq!(leases.holder("h", 0), Holder { broker: None, proven: None });
    }

    #[test]
    fn a_dropped_route_stays_dropped_until_something_newer() {
        let proof = |leases: &mut Leases, step| {
            let (_, expected) = leases.proof().unwrap();
            assert_eq!(leases.on_proof(expected, moment(step), &answer(20, &[], 2)), Verdict::Proven);
        };
        let listing = |leases: &mut Leases, step| {
            let mut listed = Listed::new(Prefix::Partitions, 20);
            listed.put(&kv("/kafscale/partition-leases/t/0", "1", 5));
            leases.on_listed(listed, moment(step));
        };
        let read = |leases: &mut Leases, step| leases.on_key_read("t", 0, moment(step), moment(9), (20, Some(1)));
        type Case<'a> = (&'a str, &'a dyn Fn(&mut Leases), Option<i32>);
        let cases: [Case<'_>; 9] = [
            ("nothing", &|_| {}, None),
            ("a repeated event", &|leases| leases.on_events(&[put(0, "1", 10)]), None),
            ("an event", &|leases| leases.on_events(&[put(0, "1", 11)]), Some(1)),
            ("an older read", &|leases| read(leases, 4), None),
            ("a newer read", &|leases| read(leases, 6), Some(1)),
            ("an older listing", &|leases| listing(leases, 4), None),
            ("a newer listing", &|leases| listing(leases, 6), Some(1)),
            ("an older proof", &|leases| proof(leases, 4), None),
            ("a newer proof", &|leases| proof(leases, 6), Some(1)),
        ];
        for (name, then, expected) in cases {
            let mut leases = leases();
            leases.drop_route("t", 0, 5);
            leases.drop_route("unknown", 0, 5);
            assert_eq!(broker(&leases, 0), None);
            then(&mut leases);
            assert_eq!(broker(&leases, 0), expected, "{name}");
            assert_eq!(broker(&leases, 5), None);
        }
    }

    #[test]
    fn a_dropped_read_is_not_replaced_by_events_before_it() {
        let mut leases = leases();
        leases.on_key_read("t", 0, moment(3), moment(4), (15, Some(3)));
        leases.drop_route("t", 0, 5);
        leases.on_events(&[put(0, "2", 12), put(0, "3", 15)]);
        assert_eq!(broker(&leases, 0), None);
        leases.on_events(&[put(0, "4", 16)]);
        assert_eq!(broker(&leases, 0), Some(4));
    }

    #[test]
    fn a_listing_overtakes_reads_before_it_even_in_a_replaced_store() {
        let mut leases = leases();
        leases.on_key_read("t", 0, moment(3), moment(4), (1_000, Some(3)));
        let mut listed = Listed::new(Prefix::Partitions, 2);
        listed.put(&kv("/kafscale/partition-leases/t/0", "7", 2));
        leases.on_listed(listed, moment(5));
        assert_eq!(broker(&leases, 0), Some(7));
    }

    #[test]
    fn a_read_made_while_an_older_listing_was_under_way_stays_if_it_is_newer() {
        for (revision, expected) in [(25, Some(3)), (20, Some(1))] {
            let mut leases = leases();
            leases.on_key_read("t", 0, moment(6), moment(7), (revision, Some(3)));
            let mut listed = Listed::new(Prefix::Partitions, 20);
            listed.put(&kv("/kafscale/partition-leases/t/0", "1", 5));
            leases.on_listed(listed, moment(5));
            assert_eq!(broker(&leases, 0), expected, "{revision}");
        }
    }
}
