//! Requests and answers of etcd as JSON: the mapping of its gateway (etcd 3.4, `/v3/`). Keys and values are base64, and
//! 64-bit numbers are text. A field with the value 0 or false may be missing.

use data_encoding::BASE64;
use pathloom_cluster::etcd::{Answer, Body, Change, Condition, Failure, KeyValue, Keys, LeaseId, Operation, Request};
use serde_json::{json, Value};

/// The path of a request, and what is posted there.
pub(super) fn encode(request: &Request) -> (&'static str, Value) {
    match request {
        Request::Grant { ttl_s } => ("/v3/lease/grant", json!({"TTL": ttl_s.to_string()})),
        Request::KeepAlive(LeaseId(id)) => ("/v3/lease/keepalive", json!({"ID": id.to_string()})),
        Request::Revoke(LeaseId(id)) => ("/v3/lease/revoke", json!({"ID": id.to_string()})),
        Request::Transact(transaction) => {
            let all = |operations: &[Operation]| operations.iter().map(operation).collect::<Vec<_>>();
            let compare: Vec<Value> = transaction.conditions.iter().map(condition).collect();
            let (success, failure) = (all(&transaction.then), all(&transaction.otherwise));
            ("/v3/kv/txn", json!({"compare": compare, "success": success, "failure": failure}))
        }
        Request::Watch { keys, from } => {
            let mut create = range(keys);
            create["start_revision"] = json!(from.to_string());
            ("/v3/watch", json!({"create_request": create}))
        }
        Request::Compact { before } => ("/v3/kv/compaction", json!({"revision": before.to_string()})),
    }
}

fn condition(condition: &Condition) -> Value {
    match condition {
        Condition::Created { key, at } => {
            json!({"key": text(key), "target": "CREATE", "result": "EQUAL", "create_revision": at.to_string()})
        }
        Condition::Changed { key, at } => {
            json!({"key": text(key), "target": "MOD", "result": "EQUAL", "mod_revision": at.to_string()})
        }
    }
}

fn operation(operation: &Operation) -> Value {
    match operation {
        Operation::Put { key, value, lease } => {
            let lease = lease.map_or(0, |lease| lease.0).to_string();
            json!({"request_put": {"key": text(key), "value": BASE64.encode(value), "lease": lease}})
        }
        Operation::Delete(keys) => json!({"request_delete_range": range(keys)}),
        Operation::Range(keys) => json!({"request_range": range(keys)}),
    }
}

fn range(keys: &Keys) -> Value {
    match keys {
        Keys::One(key) => json!({"key": text(key)}),
        Keys::Prefix(prefix) if prefix.is_empty() => {
            let zero = BASE64.encode(&[0]);
            json!({"key": zero, "range_end": zero})
        }
        Keys::Prefix(prefix) => {
            // The first key after all those with the prefix. The last byte of UTF-8 is less than 255.
            let mut end = prefix.clone().into_bytes();
            end.iter_mut().last().into_iter().for_each(|last| *last += 1);
            json!({"key": text(prefix), "range_end": BASE64.encode(&end)})
        }
    }
}

fn text(text: &str) -> String {
    BASE64.encode(text.as_bytes())
}

/// Reads the answer to a request.
pub(super) fn decode(request: &Request, answer: &Value) -> Result<Answer, Failure> {
    if let Some(failure) = failure(answer) {
        return Err(failure);
    }
    // An answer that is part of a stream has one more level.
    let answer = answer.get("result").unwrap_or(answer);
    let body = match request {
        Request::Grant { .. } => Body::Granted { lease: LeaseId(signed(answer, "ID")?), ttl_s: number(answer, "TTL")? },
        Request::KeepAlive(_) => Body::KeptAlive { ttl_s: number(answer, "TTL")? },
        Request::Revoke(_) => Body::Revoked,
        Request::Transact(_) => {
            let found = rows(answer, "responses").filter_map(|one| one.get("response_range"));
            let found = found.map(|one| rows(one, "kvs").map(key_value).collect()).collect::<Result<_, _>>()?;
            Body::Done { held: answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false), found }
        }
        Request::Watch { .. } => return Err(strange("an answer to a watch")),
        Request::Compact { .. } => Body::Compacted,
    };
    let header = answer.get("header").ok_or_else(|| strange("no header"))?;
    Ok(Answer { revision: number(header, "revision")?, body })
}

/// Reads a line of a watch.
pub(super) fn decode_changes(line: &Value) -> Result<Vec<Change>, Failure> {
    if let Some(failure) = failure(line) {
        return Err(failure);
    }
    let result = line.get("result").ok_or_else(|| strange("no result"))?;
    if result.get("canceled").and_then(Value::as_bool) == Some(true) {
        return Err(match number(result, "compact_revision")? {
            0 => Failure::Other(result["cancel_reason"].as_str().unwrap_or("the watch was cancelled").to_owned()),
            before => Failure::Compacted { before },
        });
    }
    let change = |event: &Value| {
        let kv = key_value(event.get("kv").ok_or_else(|| strange("no key"))?)?;
        let is_deleted = event.get("type").and_then(Value::as_str) == Some("DELETE");
        let KeyValue { key, mod_revision, .. } = kv.clone();
        Ok(if is_deleted { Change::Deleted { key, revision: mod_revision } } else { Change::Set(kv) })
    };
    rows(result, "events").map(change).collect()
}

/// The failure that an answer is, if it is one.
fn failure(answer: &Value) -> Option<Failure> {
    let error = answer.get("error")?;
    let message = error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or("an error without a text");
    let is = |words: &str| message.contains(words);
    Some(if is("requested lease not found") {
        Failure::NoLease
    } else if is("required revision has been compacted") {
        // Etcd does not say which revision.
        Failure::Compacted { before: 0 }
    } else if is("required revision is a future revision") {
        Failure::FutureRevision
    } else if is("duplicate key given in txn request") {
        Failure::DuplicateKey
    } else if is("database space exceeded") {
        Failure::NoSpace
    } else {
        Failure::Other(message.to_owned())
    })
}

fn rows<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn key_value(value: &Value) -> Result<KeyValue, Failure> {
    let bytes = |name: &str| {
        let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
        BASE64.decode(text.as_bytes()).map_err(|_| strange("a value that is no base64"))
    };
    let lease = signed(value, "lease")?;
    Ok(KeyValue {
        key: String::from_utf8_lossy(&bytes("key")?).into_owned(),
        value: bytes("value")?,
        create_revision: number(value, "create_revision")?,
        mod_revision: number(value, "mod_revision")?,
        lease: (lease != 0).then_some(LeaseId(lease)),
    })
}

fn signed(value: &Value, name: &str) -> Result<i64, Failure> {
    match value.get(name) {
        None => Ok(0),
        Some(Value::String(text)) => text.parse().map_err(|_| strange("a number that is none")),
        Some(other) => other.as_i64().ok_or_else(|| strange("a number that is none")),
    }
}

fn number(value: &Value, name: &str) -> Result<u64, Failure> {
    u64::try_from(signed(value, name)?).map_err(|_| strange("a negative number"))
}

fn strange(what: &str) -> Failure {
    Failure::Other(format!("etcd's answer has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        let prefix = |text: &str| range(&Keys::Prefix(text.to_owned()));
        assert_eq!(prefix("/a/"), json!({"key": BASE64.encode(b"/a/"), "range_end": BASE64.encode(b"/a0")}));
        assert_eq!(prefix(""), json!({"key": "AA==", "range_end": "AA=="}));
    }

    #[test]
    fn strange_answers_are_failures() {
        let keep_alive = Request::KeepAlive(LeaseId(1));
        for answer in ["{}", r#"{"header": {"revision": "x"}}"#, r#"{"header": {"revision": "-1"}}"#, "[]", "7"] {
            let answer = serde_json::from_str(answer).unwrap();
            assert!(matches!(decode(&keep_alive, &answer), Err(Failure::Other(_))), "{answer}");
        }
        let missing = json!({"result": {"header": {"revision": "3"}}});
        let gone = Answer { revision: 3, body: Body::KeptAlive { ttl_s: 0 } };
        assert_eq!(decode(&keep_alive, &missing), Ok(gone), "a missing time to live is 0");
        let refused = json!({"error": "etcdserver: requested lease not found", "code": 5});
        assert_eq!(decode(&keep_alive, &refused), Err(Failure::NoLease));
        assert!(decode_changes(&json!({"result": {"events": [{"kv": {"key": "?"}}]}})).is_err());
    }
}
