//! The machine's etcd vocabulary in the client's words, and back.

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, Event, EventType, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use kafscale_proxy_core::etcd;

/// etcd writes "from the first key" as one zero byte.
fn first_key(key: &Bytes) -> Vec<u8> {
    if key.is_empty() { vec![0] } else { key.to_vec() }
}

/// First key of a range, and its end; none for a single key.
pub(super) fn range_of(keys: &etcd::Keys) -> (Vec<u8>, Option<Vec<u8>>) {
    match keys {
        etcd::Keys::One(key) => (key.to_vec(), None),
        etcd::Keys::Between(start, end) => (first_key(start), Some(end.to_vec())),
    }
}

pub(super) fn range_request(request: &etcd::RangeRequest) -> (Vec<u8>, GetOptions) {
    let (key, end) = range_of(&request.keys);
    let mut options = GetOptions::new()
        .with_limit(request.limit)
        .with_revision(request.revision)
        .with_min_mod_revision(request.min_mod_revision);
    if let Some(end) = end {
        options = options.with_range(end);
    }
    if request.keys_only {
        options = options.with_keys_only();
    }
    if request.count_only {
        options = options.with_count_only();
    }
    (key, options)
}

pub(super) fn range_response(mut response: GetResponse) -> etcd::RangeResponse {
    etcd::RangeResponse {
        revision: response.header().map_or(0, etcd_client::ResponseHeader::revision),
        count: response.count(),
        more: response.more(),
        kvs: response.take_kvs().into_iter().map(key_value).collect(),
    }
}

fn key_value(kv: KeyValue) -> etcd::KeyValue {
    let (create_revision, mod_revision, lease) = (kv.create_revision(), kv.mod_revision(), kv.lease());
    let (key, value) = kv.into_key_value();
    etcd::KeyValue { key: key.into(), value: value.into(), create_revision, mod_revision, lease }
}

pub(super) fn txn(request: &etcd::TxnRequest) -> Txn {
    Txn::new()
        .when(request.compares.iter().map(compare).collect::<Vec<_>>())
        .and_then(request.success.iter().map(operation).collect::<Vec<_>>())
        .or_else(request.failure.iter().map(operation).collect::<Vec<_>>())
}

fn compare(compare: &etcd::Compare) -> Compare {
    match compare {
        etcd::Compare::CreateRevision(key, revision) => {
            Compare::create_revision(key.to_vec(), CompareOp::Equal, *revision)
        }
        etcd::Compare::ModRevision(key, revision) => Compare::mod_revision(key.to_vec(), CompareOp::Equal, *revision),
        etcd::Compare::Value(key, value) => Compare::value(key.to_vec(), CompareOp::Equal, value.to_vec()),
    }
}

fn operation(operation: &etcd::TxnOperation) -> TxnOp {
    match operation {
        etcd::TxnOperation::Range(request) => {
            let (key, options) = range_request(request);
            TxnOp::get(key, Some(options))
        }
        etcd::TxnOperation::Put { key, value, lease } => {
            TxnOp::put(key.to_vec(), value.to_vec(), Some(PutOptions::new().with_lease(*lease)))
        }
        etcd::TxnOperation::Delete(keys) => {
            let (key, end) = range_of(keys);
            let options = end.map(|end| DeleteOptions::new().with_range(end));
            TxnOp::delete(key, options)
        }
    }
}

/// An answer of a kind that was not asked for: the whole outcome is unknown then.
pub(super) fn txn_response(response: &TxnResponse) -> Result<etcd::TxnResponse, String> {
    let answers = response
        .op_responses()
        .into_iter()
        .map(|answer| match answer {
            TxnOpResponse::Get(range) => Ok(etcd::TxnAnswer::Range(range_response(range))),
            TxnOpResponse::Put(_) => Ok(etcd::TxnAnswer::Put),
            TxnOpResponse::Delete(delete) => Ok(etcd::TxnAnswer::Delete(delete.deleted())),
            TxnOpResponse::Txn(_) => Err("a nested transaction was answered, none was asked for".to_owned()),
        })
        .collect::<Result<_, _>>()?;
    Ok(etcd::TxnResponse {
        revision: response.header().map_or(0, etcd_client::ResponseHeader::revision),
        succeeded: response.succeeded(),
        answers,
    })
}

pub(super) fn watch_event(event: &Event) -> Option<etcd::WatchEvent> {
    let kv = event.kv()?;
    Some(match event.event_type() {
        EventType::Put => etcd::WatchEvent::Put(key_value(kv.clone())),
        EventType::Delete => {
            etcd::WatchEvent::Delete { key: Bytes::copy_from_slice(kv.key()), mod_revision: kv.mod_revision() }
        }
    })
}
