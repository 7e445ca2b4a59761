//! The liveness phase: nothing is wrong any more, so everything that was asked is answered, everything that is asked now is
//! served, and nothing is held or left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::http_clients::HttpActor;
use super::kafka_clients::KafkaActor;
use super::scenario::{Ask, Manner, TOPICS};
use super::{Failure, Kind, Simulation};
use crate::world::invariants::{check_blobs, leftovers};

/// The longest that anything may wait: a replica may stand still for another 45 s, and the body of a slow client then takes
/// more than half a minute.
const ANSWERS: Duration = Duration::from_secs(100);
/// New requests are served within a dial, a refusal and a read of etcd.
const SERVICE: Duration = Duration::from_secs(20);
/// Longer than every deadline, retry and removal together.
const REST: Duration = Duration::from_secs(160);
/// Operations that are open while nothing is going on: three watches, and reads that come and go.
const WATCHES: usize = 3;

fn dead(text: String) -> Failure {
    Failure { kind: Kind::Liveness, text }
}

fn broken(text: String) -> Failure {
    Failure { kind: Kind::Safety, text }
}

impl Simulation {
    /// What must hold after all faults have ended.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        self.blobs()?;
        self.everything_is_answered()?;
        self.disturbances.set_right(&mut self.world);
        self.everybody_is_served()?;
        self.nothing_is_left()
    }

    fn blobs(&self) -> Result<(), Failure> {
        if let Some(fault) = check_blobs(&self.world.log, &self.world.s3).first() {
            return Err(broken(format!("I1: {fault:?}")));
        }
        match self.world.deletes.referred(&self.world.log).first() {
            Some(key) => Err(broken(format!("I2: {key} was deleted"))),
            None => Ok(()),
        }
    }

    fn everything_is_answered(&mut self) -> Result<(), Failure> {
        // Those for whom nothing waits have only been slow; the others will not read any more.
        for actor in &self.kafka {
            if !self.world.client(actor.id).is_blocked() {
                self.world.go_on(actor.id);
            }
        }
        self.run_until(self.world.now().monotonic + ANSWERS)?;
        if let Some(client) = self.half.iter().find(|client| !self.world.client(**client).is_closed()) {
            return Err(dead(format!("{client:?} is kept, and its request is not whole")));
        }
        for actor in &self.kafka {
            let client = self.world.client(actor.id);
            if !client.is_closed() && client.awaited() > 0 {
                return Err(dead(format!("{:?} waits for {} answers", actor.id, client.awaited())));
            }
        }
        for actor in &self.http {
            // A client that takes nothing is waited for, and then broken off.
            if !self.world.has_ended(actor.exchange) {
                return Err(dead(format!("{:?} has not ended", actor.exchange)));
            }
        }
        Ok(())
    }

    fn everybody_is_served(&mut self) -> Result<(), Failure> {
        let shards: Vec<usize> = self.world.living_shards().collect();
        let all = (1 << TOPICS.iter().map(|(_, count)| count).sum::<i32>()) - 1;
        let (mut clients, mut exchanges) = (Vec::new(), Vec::new());
        let (refused, errors) = (self.report.kafka.refused, self.report.kafka.errors);
        for shard in shards {
            let mut client = KafkaActor::connect(&mut self.world, shard);
            client.ask(&mut self.world, Ask::Metadata);
            client.ask(&mut self.world, Ask::Produce { acks: -1, partitions: all });
            client.ask(&mut self.world, Ask::Fetch { partitions: all, max_wait_ms: 500 });
            client.ask(&mut self.world, Ask::Heartbeat);
            clients.push(client.id);
            self.kafka.push(client);
            let upload = HttpActor::upload(&mut self.world, shard, 5_000, 1, Manner::Whole);
            let probe = HttpActor::probe(&mut self.world, shard);
            exchanges.extend([("upload to", upload.exchange, shard), ("probe of", probe.exchange, shard)]);
            self.http.extend([upload, probe]);
        }
        self.run_until(self.world.now().monotonic + SERVICE)?;
        for client in clients {
            let seen = self.world.client(client);
            if seen.is_closed() || seen.awaited() > 0 {
                return Err(dead(format!("the new {client:?} is not served: {} open", seen.awaited())));
            }
        }
        if self.report.kafka.refused != refused {
            return Err(dead("a Produce is refused although nothing is wrong".into()));
        }
        if self.report.kafka.errors != errors {
            return Err(dead("a Fetch or Metadata is answered with an error although nothing is wrong".into()));
        }
        for (what, exchange, shard) in exchanges {
            let client = self.world.exchange(exchange);
            if client.status() != Some(200) {
                let body = String::from_utf8_lossy(client.body()).into_owned();
                return Err(dead(format!("a new {what} shard {shard} ends with {:?}: {body}", client.status())));
            }
        }
        for actor in self.kafka.drain(..) {
            self.world.vanish(actor.id);
        }
        Ok(())
    }

    fn nothing_is_left(&mut self) -> Result<(), Failure> {
        self.run_until(self.world.now().monotonic + REST)?;
        // Reads of the cluster come and go: a moment without any is soon there.
        let mut patience = 2_000;
        while let Some(shard) = self.busy_shard() {
            patience -= 1;
            let end = self.world.now().monotonic + Duration::from_millis(10);
            if patience == 0 {
                let open = self.world.proxy(shard).stats().operations;
                return Err(dead(format!("shard {shard} has {open} operations open for ever")));
            }
            self.run_until(end)?;
        }
        self.blobs()?;
        let living: Vec<usize> = self.world.living_shards().collect();
        let left = leftovers(&self.world.log, &self.world.s3);
        let mut by_shard: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for key in left {
            let is_object = self.world.s3.model.object(&key).is_some();
            let made_here = self.world.judges.uploads.shard(&key).filter(|shard| living.contains(shard));
            let wanted = self.world.judges.records.may_refer_to(&key) || self.world.deletes.was_ordered(&key);
            if let Some(shard) = made_here.filter(|_| is_object && !wanted) {
                return Err(broken(format!("I9: shard {shard} keeps {key}, to which no record can refer")));
            }
            // Whoever ordered that tries again as long as it lives; nothing has been wrong for some minutes.
            let removable = self.world.deletes.was_ordered(&key) && !self.world.deletes.may_be_referred(&key);
            if let Some(shard) = made_here.filter(|_| is_object && removable) {
                return Err(broken(format!("I9: shard {shard} did not get rid of {key}, and does not try any more")));
            }
            if let Some(shard) = self.world.judges.uploads.shard(&key) {
                by_shard.entry(shard).or_default().push(key);
            }
        }
        for shard in self.world.living_shards().collect::<Vec<_>>() {
            let stats = self.world.proxy(shard).stats();
            let lfs = stats.lfs.expect("the API is on");
            let left = by_shard.remove(&shard).unwrap_or_default();
            if let Some(key) = left.iter().find(|key| self.leaves_nothing && !self.world.deletes.may_be_referred(key)) {
                return Err(broken(format!("I9: no broker has the record of {key}, and it is still there")));
            }
            let counted = lfs.orphans - lfs.orphans_removed;
            if left.len() as u64 > counted {
                return Err(broken(format!("I9: shard {shard} left {left:?} and counted {counted}")));
            }
            self.report.reused_connections += lfs.reused_connections;
            let held = [
                stats.exchanges,
                lfs.exchanges,
                lfs.broker_connections,
                lfs.memory_taken_bytes as usize,
                lfs.disk_taken_bytes as usize,
                stats.listener.clients,
                stats.listener.open_requests,
                stats.listener.broker_connections,
                stats.listener.frame_bytes,
                stats.listener.small_request_bytes,
                stats.listener.answer_bytes,
                self.world.files(shard),
            ];
            if held.iter().any(|level| *level != 0) {
                return Err(dead(format!("shard {shard} holds {held:?}")));
            }
        }
        for (shard, orphans) in self.world.judges.endings.orphans() {
            let mut left = by_shard.remove(&shard).unwrap_or_default();
            // A body that was given up may be stored after its delete, when the process that would look again is gone.
            left.retain(|key| !self.world.s3.has_deleted(key));
            if left.len() as u64 > orphans {
                return Err(broken(format!("I9: shard {shard} left {left:?} at its end and counted {orphans}")));
            }
        }
        if self.world.s3.model.opened() > 0 {
            return Err(dead(format!("{} objects are open", self.world.s3.model.opened())));
        }
        Ok(())
    }

    fn busy_shard(&self) -> Option<usize> {
        self.world.living_shards().find(|shard| self.world.proxy(*shard).stats().operations > WATCHES)
    }
}
