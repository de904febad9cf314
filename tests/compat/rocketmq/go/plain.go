// Messages without a delay, with Producer and SimpleConsumer: content, filters, leases, limits.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const (
	mib               = 1 << 20
	staleHandle       = int32(v2.Code_INVALID_RECEIPT_HANDLE)
	tooManyProperties = int32(v2.Code_MESSAGE_PROPERTIES_TOO_LARGE)
)

var plain = map[string]scenario{
	"normal": normal, "tag-filter": tagFilter, "sql-filter": sqlFilter, "redelivery": redelivery,
	"invisible": invisible, "large": large, "many-properties": manyProperties, "gzip": compressible,
	"unicode": unicode, "namespaces": namespaces,
}

func pointed(text *string) string {
	if text == nil {
		return "<none>"
	}
	return *text
}

func sorted(texts []string) []string {
	return slices.Sorted(slices.Values(texts))
}

// Ten messages come as they were sent, are acknowledged, and nothing is left.
func normal(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	sent := map[string]int{}
	for index := range 10 {
		message := env.message(fmt.Sprint("normal ", index))
		message.SetTag(fmt.Sprint("tag-", index%3))
		message.SetKeys(fmt.Sprint("key-", index), fmt.Sprint("second-", index))
		message.AddProperty("index", strconv.Itoa(index))
		message.AddProperty("colour", "blue")
		receipt, err := send(producer, message)
		if err != nil {
			return nil, err
		}
		sent[receipt.MessageID] = index
	}
	if err := same("message ids", len(sent), 10); err != nil {
		return nil, err
	}
	came, err := drain(consumer, 10, timeout)
	if err != nil {
		return nil, err
	}
	for _, one := range came {
		index, known := sent[one.GetMessageId()]
		if !known {
			return nil, fmt.Errorf("unknown message id %s", one.GetMessageId())
		}
		delete(sent, one.GetMessageId())
		age := one.at.Sub(*one.GetBornTimestamp())
		if age < -time.Second || age > time.Minute {
			return nil, fmt.Errorf("born %v ago", age)
		}
		if err := first(
			same("topic", one.GetTopic(), env.topic),
			same("body", one.text(), fmt.Sprint("normal ", index)),
			same("tag", pointed(one.GetTag()), fmt.Sprint("tag-", index%3)),
			same("keys", sorted(one.GetKeys()), []string{fmt.Sprint("key-", index), fmt.Sprint("second-", index)}),
			same("properties", one.GetProperties(), map[string]string{"index": strconv.Itoa(index), "colour": "blue"}),
			same("attempt", one.GetDeliveryAttempt(), int32(1)),
		); err != nil {
			return nil, err
		}
	}
	return facts{"messages": 10}, nothing(consumer, quiet)
}

// Of four kinds of tags, two are wanted.
func tagFilter(env *environment) (facts, error) {
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	consumer, err := env.simple("", rocketmq.NewFilterExpression("A || B"))
	if err != nil {
		return nil, err
	}
	var expected []string
	for index := range 5 {
		for _, tag := range []string{"A", "B", "C", ""} {
			message := env.message(fmt.Sprint(tag, " ", index))
			if tag != "" {
				message.SetTag(tag)
			}
			if tag == "A" || tag == "B" {
				expected = append(expected, string(message.Body))
			}
			if _, err := send(producer, message); err != nil {
				return nil, err
			}
		}
	}
	came, err := drain(consumer, 10, timeout)
	return facts{"sent": 20, "received": 10},
		first(err, same("bodies", texts(came), sorted(expected)), nothing(consumer, quiet))
}

// A condition over properties.
func sqlFilter(env *environment) (facts, error) {
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	consumer, err := env.simple("", rocketmq.NewFilterExpressionWithType("a > 3 AND b = 'x'", rocketmq.SQL92))
	if err != nil {
		return nil, err
	}
	cases := [][2]string{{"5", "x"}, {"4", "x"}, {"3", "x"}, {"10", "y"}, {"", "x"}, {"10", ""}}
	for _, one := range cases {
		message := env.message(one[0] + " " + one[1])
		for index, name := range []string{"a", "b"} {
			if one[index] != "" {
				message.AddProperty(name, one[index])
			}
		}
		if _, err := send(producer, message); err != nil {
			return nil, err
		}
	}
	came, err := drain(consumer, 2, timeout)
	return facts{"sent": len(cases), "received": 2},
		first(err, same("bodies", texts(came), []string{"4 x", "5 x"}), nothing(consumer, quiet))
}

// What is not acknowledged comes again when its ten seconds are over, as attempt 2.
func redelivery(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	if _, err := send(producer, env.message("redelivered")); err != nil {
		return nil, err
	}
	before, err := receive(consumer, 1, 10*time.Second)
	if err != nil {
		return nil, err
	}
	after, err := receive(consumer, 1, invisibleFor)
	if err != nil {
		return nil, err
	}
	waited := after[0].at.Sub(before[0].at)
	// The lease began before the answer was here, so a little less than ten seconds are seen.
	if waited < 9800*time.Millisecond || waited > 20*time.Second {
		return nil, fmt.Errorf("came again after %v", waited)
	}
	ended := stale(consumer, before[0])
	return facts{"waited_s": waited.Seconds(), "stale_code": staleHandle}, first(
		same("message id", after[0].GetMessageId(), before[0].GetMessageId()),
		same("attempt", before[0].GetDeliveryAttempt(), int32(1)),
		same("attempt", after[0].GetDeliveryAttempt(), int32(2)),
		refusedWith("the handle whose lease ended", ended, staleHandle),
		consumer.Ack(context.Background(), after[0].MessageView),
		nothing(consumer, quiet))
}

// What the server says to a handle that is no longer good. This client's Ack does not look at the answer's status, so the
// lease is changed instead. It takes the handle of a refusal, too, which is empty; so a copy is what loses it.
func stale(consumer rocketmq.SimpleConsumer, message received) error {
	view := *message.MessageView
	return consumer.ChangeInvisibleDuration(&view, invisibleFor)
}

// A changed lease gives a new handle, holds as long as it says, and ends the old handle.
func invisible(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	if _, err := send(producer, env.message("invisible")); err != nil {
		return nil, err
	}
	before, err := receive(consumer, 1, invisibleFor)
	if err != nil {
		return nil, err
	}
	old, began := *before[0].MessageView, time.Now()
	if err := consumer.ChangeInvisibleDuration(before[0].MessageView, 5*time.Second); err != nil {
		return nil, err
	}
	if handle := before[0].GetReceiptHandle(); handle == "" || handle == old.ReceiptHandle {
		return nil, fmt.Errorf("the handle did not change: %q", handle)
	}
	superseded := stale(consumer, received{&old, began})
	after, err := receive(consumer, 1, invisibleFor)
	if err != nil {
		return nil, err
	}
	waited := after[0].at.Sub(began)
	if waited < 5*time.Second || waited > 15*time.Second {
		return nil, fmt.Errorf("came again after %v", waited)
	}
	ended := stale(consumer, before[0])
	return facts{"waited_s": waited.Seconds(), "stale_code": staleHandle}, first(
		same("attempt", after[0].GetDeliveryAttempt(), int32(2)),
		refusedWith("the handle whose lease ended", ended, staleHandle),
		consumer.ChangeInvisibleDuration(after[0].MessageView, invisibleFor),
		consumer.Ack(context.Background(), after[0].MessageView),
		nothing(consumer, quiet),
		// Last, for the original does not refuse it; it refuses the other one.
		refusedWith("the superseded handle", superseded, staleHandle))
}

// Almost 4 MiB come back equal; more than 4 MiB are refused.
func large(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	body := make([]byte, 4*mib-4096)
	rand.New(rand.NewSource(4)).Read(body)
	if _, err := send(producer, &rocketmq.Message{Topic: env.topic, Body: body}); err != nil {
		return nil, err
	}
	came, err := drain(consumer, 1, timeout)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(came[0].GetBody(), body) {
		return nil, fmt.Errorf("another body came back, of %d bytes", len(came[0].GetBody()))
	}
	_, tooLarge := send(producer, &rocketmq.Message{Topic: env.topic, Body: make([]byte, 4*mib+1)})
	found, err := refused("4 MiB + 1 byte", tooLarge)
	return facts{"bytes": len(body), "refused_by": found.side, "code": found.code}, first(err, nothing(consumer, quiet))
}

// 128 properties are the limit.
func manyProperties(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	most, excess := env.message("128"), env.message("129")
	excess.AddProperty("one", "more")
	for index := range 128 {
		for _, message := range []*rocketmq.Message{most, excess} {
			message.AddProperty(fmt.Sprint("name-", index), fmt.Sprint("value ", index))
		}
	}
	if _, err := send(producer, most); err != nil {
		return nil, err
	}
	came, err := drain(consumer, 1, timeout)
	if err != nil {
		return nil, err
	}
	_, tooMany := send(producer, excess)
	return facts{"refused_by": "server", "code": tooManyProperties}, first(
		same("properties", came[0].GetProperties(), most.GetProperties()),
		refusedWith("129 properties", tooMany, tooManyProperties),
		nothing(consumer, quiet))
}

// Bodies that some clients compress by themselves, and one that is gzip already, come back equal.
func compressible(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	text := []byte(strings.Repeat("It was the best of times, it was the worst of times. ", 1300))
	var zipped bytes.Buffer
	writer := gzip.NewWriter(&zipped)
	if _, err := writer.Write(text); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	bodies := [][]byte{text, text[:5000], zipped.Bytes()}
	sizes := []int{}
	for index, body := range bodies {
		message := &rocketmq.Message{Topic: env.topic, Body: body}
		message.AddProperty("index", strconv.Itoa(index))
		if _, err := send(producer, message); err != nil {
			return nil, err
		}
		sizes = append(sizes, len(body))
	}
	came, err := drain(consumer, len(bodies), timeout)
	if err != nil {
		return nil, err
	}
	for _, one := range came {
		index, err := strconv.Atoi(one.GetProperties()["index"])
		if err != nil || !bytes.Equal(one.GetBody(), bodies[index]) {
			return nil, fmt.Errorf("another body %d came back", index)
		}
	}
	return facts{"bytes": sizes, "compressed_by_client": false}, nothing(consumer, quiet)
}

// Text beyond ASCII in body, tag, property and keys; and a key with a blank stays one key.
func unicode(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	body, tag := "Grüße 日本語 🚀", "märz-三月"
	message := env.message(body)
	message.SetTag(tag)
	message.SetKeys("Schlüssel-鍵", "key with blanks")
	message.AddProperty("größe", "übergroß 🦒")
	message.AddProperty("leer zeichen", "a b")
	if _, err := send(producer, message); err != nil {
		return nil, err
	}
	came, err := drain(consumer, 1, timeout)
	if err != nil {
		return nil, err
	}
	return facts{"messages": 1}, first(
		same("body", came[0].text(), body),
		same("tag", pointed(came[0].GetTag()), tag),
		same("properties", came[0].GetProperties(), message.GetProperties()),
		// The original splits a key at its blanks.
		same("keys", sorted(came[0].GetKeys()), []string{"Schlüssel-鍵", "key with blanks"}),
		nothing(consumer, quiet))
}

// One topic and group in two namespaces, and in none: three topics and three groups.
func namespaces(env *environment) (facts, error) {
	names := []string{"", "compat-a", "compat-b"}
	for _, name := range names {
		producer, err := env.producer(name)
		if err != nil {
			return nil, err
		}
		for index := range 3 {
			if _, err := send(producer, env.message(fmt.Sprint(name, " ", index))); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range names {
		consumer, err := env.simple(name, rocketmq.SUB_ALL)
		if err != nil {
			return nil, err
		}
		came, err := drain(consumer, 3, timeout)
		if err != nil {
			return nil, err
		}
		expected := []string{name + " 0", name + " 1", name + " 2"}
		if err := first(
			same("bodies in namespace '"+name+"'", texts(came), expected),
			same("topic", came[0].GetTopic(), env.topic),
			nothing(consumer, time.Second),
		); err != nil {
			return nil, err
		}
	}
	return facts{"namespaces": len(names)}, nil
}
