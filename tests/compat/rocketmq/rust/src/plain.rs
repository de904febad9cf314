//! Messages without a delay, with Producer and SimpleConsumer: content, filters, leases, limits, order.

use std::collections::HashMap;

use rocketmq::model::common::FilterType;

use crate::base::{check, facts, now_ms, properties, refused, same, sorted, texts};
use crate::base::{Context, Facts, Reason, INVISIBLE, QUIET, TIMEOUT};

const MIB: usize = 1 << 20;
const STALE_HANDLE: &str = "INVALID_RECEIPT_HANDLE";
const TOO_MANY_PROPERTIES: &str = "MESSAGE_PROPERTIES_TOO_LARGE";

/// Ten messages come as they were sent, are acknowledged, and nothing is left.
pub async fn normal(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let mut sent = HashMap::new();
    for index in 0..10 {
        let message = context
            .message(format!("normal {index}"))
            .set_tag(format!("tag-{}", index % 3))
            .set_keys(vec![format!("key-{index}"), format!("second-{index}")])
            .set_properties(properties(&[("index", &index.to_string()), ("colour", "blue")]));
        sent.insert(context.send(&producer, message).await?, index);
    }
    same("message ids", sent.len(), 10)?;
    for received in consumer.drain(10, TIMEOUT).await? {
        let view = &received.view;
        let index = sent.remove(view.message_id());
        let index = index.ok_or_else(|| Reason::Failed(format!("unknown message id {}", view.message_id())))?;
        same("topic", view.topic(), context.topic.as_str())?;
        same("body", received.text(), format!("normal {index}"))?;
        same("tag", view.tag(), Some(format!("tag-{}", index % 3).as_str()))?;
        let keys = sorted(view.keys().iter().cloned());
        same("keys", keys, vec![format!("key-{index}"), format!("second-{index}")])?;
        let expected = properties(&[("index", &index.to_string()), ("colour", "blue")]);
        same("properties", view.properties(), &expected)?;
        same("attempt", view.delivery_attempt(), 1)?;
        let age_s = now_ms() / 1000.0 - view.born_timestamp() as f64;
        check((-1.0..60.0).contains(&age_s), || format!("born {age_s} s ago"))?;
    }
    consumer.nothing(QUIET).await?;
    Ok(facts([("messages", 10.into())]))
}

/// Of four kinds of tags, two are wanted.
pub async fn tag_filter(context: &Context) -> Result<Facts, Reason> {
    let producer = context.producer().await?;
    let consumer = context.consumer(FilterType::Tag, "A || B").await?;
    for index in 0..5 {
        for tag in ["A", "B", "C"] {
            context.send(&producer, context.message(format!("{tag} {index}")).set_tag(tag)).await?;
        }
        context.send(&producer, context.message(format!("none {index}"))).await?;
    }
    let expected = ["A", "B"].iter().flat_map(|tag| (0..5).map(move |index| format!("{tag} {index}")));
    same("bodies", texts(&consumer.drain(10, TIMEOUT).await?), expected.collect())?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("sent", 20.into()), ("received", 10.into())]))
}

/// A condition over properties.
pub async fn sql_filter(context: &Context) -> Result<Facts, Reason> {
    let producer = context.producer().await?;
    let consumer = context.consumer(FilterType::Sql, "a > 3 AND b = 'x'").await?;
    let cases = [("5", "x"), ("4", "x"), ("3", "x"), ("10", "y"), ("", "x"), ("10", "")];
    for (a, b) in cases {
        let mut given = properties(&[("a", a), ("b", b)]);
        given.retain(|_, value| !value.is_empty());
        context.send(&producer, context.message(format!("{a} {b}")).set_properties(given)).await?;
    }
    same("bodies", texts(&consumer.drain(2, TIMEOUT).await?), vec!["4 x".to_string(), "5 x".to_string()])?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("sent", cases.len().into()), ("received", 2.into())]))
}

/// What is not acknowledged comes again when its ten seconds are over, as attempt 2.
pub async fn redelivery(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    context.send(&producer, context.message("redelivered")).await?;
    let first = consumer.receive(1, std::time::Duration::from_secs(10)).await?.remove(0);
    let second = consumer.receive(1, INVISIBLE).await?.remove(0);
    let waited_s = (second.at_ms - first.at_ms) / 1000.0;
    same("message id", second.view.message_id(), first.view.message_id())?;
    same("attempts", [first.view.delivery_attempt(), second.view.delivery_attempt()], [1, 2])?;
    // The lease began before the answer was here, so a little less than ten seconds are seen.
    check((9.8..20.0).contains(&waited_s), || format!("came again after {waited_s} s"))?;
    let code = refused("the acknowledgement of the first delivery", consumer.ack(&first).await)?;
    same("refusal of the ended lease", code.as_deref(), Some(STALE_HANDLE))?;
    consumer.ack(&second).await?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("waited_s", waited_s.into()), ("stale_code", STALE_HANDLE.into())]))
}

/// Almost 4 MiB come back equal; more than 4 MiB are refused, and not by this client.
pub async fn large(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let mut state = 4_u32;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(4 * MIB - 4096)
    .collect();
    context.send(&producer, context.message(body.clone())).await?;
    let came = consumer.drain(1, TIMEOUT).await?;
    check(came[0].view.body() == body, || "another body came back".to_string())?;
    let code = refused("4 MiB + 1 byte", producer.send(context.message(vec![0; 4 * MIB + 1]).build()?).await)?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("bytes", body.len().into()), ("refused_by", "server".into()), ("code", code.into())]))
}

/// 128 properties are the limit.
pub async fn many_properties(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let mut given: HashMap<String, String> =
        (0..128).map(|index| (format!("name-{index}"), format!("value {index}"))).collect();
    context.send(&producer, context.message("128").set_properties(given.clone())).await?;
    same("properties", consumer.drain(1, TIMEOUT).await?[0].view.properties(), &given)?;
    given.insert("one".to_string(), "more".to_string());
    let excess = context.message("129").set_properties(given).build()?;
    let code = refused("129 properties", producer.send(excess).await)?;
    same("refusal", code.as_deref(), Some(TOO_MANY_PROPERTIES))?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("refused_by", "server".into()), ("code", code.into())]))
}

/// Bodies that some clients compress by themselves, and one that is gzip already, come back equal.
pub async fn compressible(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let text = "It was the best of times, it was the worst of times. ".repeat(1300).into_bytes();
    // "gzip", as gzip makes it
    let zipped = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03K\xaf\xca,\x00\x00\xf2\\\xe9:\x04\x00\x00\x00".to_vec();
    let bodies = [text.clone(), text[..5000].to_vec(), zipped];
    for (index, body) in bodies.iter().enumerate() {
        let given = properties(&[("index", &index.to_string())]);
        context.send(&producer, context.message(body.clone()).set_properties(given)).await?;
    }
    for received in consumer.drain(bodies.len(), TIMEOUT).await? {
        let index: usize = received.view.properties()["index"].parse().unwrap();
        check(received.view.body() == bodies[index], || format!("another body {index} came back"))?;
    }
    consumer.nothing(QUIET).await?;
    let sizes: Vec<usize> = bodies.iter().map(Vec::len).collect();
    Ok(facts([("bytes", sizes.into()), ("compressed_by_client", false.into())]))
}

/// Text beyond ASCII in body, tag, property and keys; and a key with a blank stays one key.
pub async fn unicode(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    let (body, tag) = ("Grüße 日本語 🚀", "märz-三月");
    let given = properties(&[("größe", "übergroß 🦒"), ("leer zeichen", "a b")]);
    let keys = vec!["Schlüssel-鍵", "key with blanks"];
    let message = context.message(body).set_tag(tag).set_keys(keys.clone()).set_properties(given.clone());
    context.send(&producer, message).await?;
    let received = consumer.drain(1, TIMEOUT).await?.remove(0);
    same("body", received.text().as_str(), body)?;
    same("tag", received.view.tag(), Some(tag))?;
    same("properties", received.view.properties(), &given)?;
    // The original splits a key at its blanks.
    same("keys", sorted(received.view.keys().iter().cloned()), sorted(keys))?;
    consumer.nothing(QUIET).await?;
    Ok(facts([("messages", 1.into())]))
}

/// Three message groups of 20, interleaved: the order within each is kept.
pub async fn fifo(context: &Context) -> Result<Facts, Reason> {
    let (producer, consumer) = context.both().await?;
    for index in 0..20 {
        for group in ["red", "green", "blue"] {
            context.send(&producer, context.message(format!("simple {index}")).set_message_group(group)).await?;
        }
    }
    let came = consumer.drain(60, 2 * TIMEOUT).await?;
    same("messages", came.len(), 60)?;
    let expected: Vec<String> = (0..20).map(|index| format!("simple {index}")).collect();
    for group in ["red", "green", "blue"] {
        let found = came.iter().filter(|one| one.view.message_group() == Some(group));
        same(&format!("order in {group}"), found.map(|one| one.text()).collect(), expected.clone())?;
    }
    consumer.nothing(QUIET).await?;
    Ok(facts([("messages", 60.into()), ("groups", 3.into()), ("push", "this client has no PushConsumer".into())]))
}
