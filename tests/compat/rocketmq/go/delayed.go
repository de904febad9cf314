// Messages that are not delivered when they are sent: delays, recalls, transactions.
package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

const (
	// RocketMQ is up to 1.1 s late; Tarry is measured elsewhere.
	lateMost = 2500 * time.Millisecond
	// RocketMQ asks for a transaction that is left undecided about 30 s later.
	asked = 120 * time.Second
)

var delayed = map[string]scenario{
	"delay": delay, "past-delay": pastDelay, "recall": recall, "transaction": transaction,
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

func sendAt(producer rocketmq.Producer, message *rocketmq.Message, due time.Time) (*rocketmq.SendReceipt, error) {
	message.SetDelayTimestamp(due)
	return send(producer, message)
}

// Never early; due times to the millisecond. RocketMQ rounds them to a second.
func delay(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	due := map[string]time.Time{}
	begin := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	for index := range 20 {
		body := fmt.Sprint("delay ", index)
		due[body] = begin.Add(time.Duration(index) * 137 * time.Millisecond)
		if _, err := sendAt(producer, env.message(body), due[body]); err != nil {
			return nil, err
		}
	}
	came, err := drain(consumer, len(due), timeout)
	if err != nil {
		return nil, err
	}
	var lateness []time.Duration
	var sum time.Duration
	for _, one := range came {
		late := one.at.Sub(due[one.text()])
		lateness, sum = append(lateness, late), sum+late
		if stamp := one.GetDeliveryTimestamp(); stamp == nil || !stamp.Equal(due[one.text()]) {
			return nil, fmt.Errorf("delivery timestamp: %v instead of %v", stamp, due[one.text()])
		}
	}
	least, most := slices.Min(lateness), slices.Max(lateness)
	if least < 0 || most > lateMost {
		return nil, fmt.Errorf("between %v and %v late", least, most)
	}
	return facts{
		"messages": len(came), "precision_ms": 1, "lateness_ms_min": milliseconds(least),
		"lateness_ms_mean": milliseconds(sum / time.Duration(len(came))), "lateness_ms_max": milliseconds(most),
	}, first(same("bodies", texts(came), slices.Sorted(maps.Keys(due))), nothing(consumer, time.Second))
}

// Due already: delivered at once.
func pastDelay(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	for _, past := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
		if _, err := sendAt(producer, env.message(past.String()), time.Now().Add(-past)); err != nil {
			return nil, err
		}
	}
	came, err := drain(consumer, 3, timeout)
	if err != nil {
		return nil, err
	}
	waited := came[2].at.Sub(sent)
	if waited > 3*time.Second {
		return nil, fmt.Errorf("came after %v", waited)
	}
	return facts{"messages": 3, "waited_ms": milliseconds(waited)}, nothing(consumer, quiet)
}

// A recalled message never comes. What cannot be recalled is refused. The original says OK to any well-formed handle, of
// messages that are delivered or unknown, too; and it has recalls off unless recallMessageEnable is set.
func recall(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	due := time.Now().Add(4 * time.Second)
	unwanted, err := sendAt(producer, env.message("recalled"), due)
	if err != nil {
		return nil, err
	}
	control, err := sendAt(producer, env.message("control"), due)
	if err != nil {
		return nil, err
	}
	recalled, err := producer.Recall(context.Background(), env.topic, unwanted.RecallHandle)
	if err != nil {
		return nil, fmt.Errorf("recall: %w", err)
	}
	came, err := drain(consumer, 1, timeout)
	if err != nil {
		return nil, err
	}
	if err := first(
		same("recalled id", recalled, unwanted.MessageID),
		same("body", came[0].text(), "control"),
		nothing(consumer, quiet),
	); err != nil {
		return nil, err
	}
	codes := map[string]int32{}
	for name, handle := range map[string]string{
		"delivered": control.RecallHandle, "recalled already": unwanted.RecallHandle, "unknown": "bm8gc3VjaCBoYW5kbGU",
	} {
		_, again := producer.Recall(context.Background(), env.topic, handle)
		found, err := refused("recall of a message that is "+name, again)
		if err != nil {
			return nil, err
		}
		if found.side != "server" || found.code/10_000 != 4 {
			return nil, fmt.Errorf("refusal of %s: %v", name, again)
		}
		codes[name] = found.code
	}
	return facts{"codes": codes}, nil
}

// Committed: delivered. Rolled back: not. Undecided: the checker is asked, and commits.
func transaction(env *environment) (facts, error) {
	var lock sync.Mutex
	var askedAt time.Time
	asks := map[string]int{}
	checker := &rocketmq.TransactionChecker{Check: func(message *rocketmq.MessageView) rocketmq.TransactionResolution {
		lock.Lock()
		defer lock.Unlock()
		if askedAt.IsZero() {
			askedAt = time.Now()
		}
		asks[string(message.GetBody())+" "+message.GetMessageId()]++
		return rocketmq.COMMIT
	}}
	producer, err := env.producer("", rocketmq.WithTransactionChecker(checker))
	if err != nil {
		return nil, err
	}
	consumer, err := env.simple("", rocketmq.SUB_ALL)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, body := range []string{"commit", "rollback", "undecided"} {
		message, begun := env.message(body), producer.BeginTransaction()
		message.SetTag("transaction")
		receipts, err := producer.SendWithTransaction(context.Background(), message, begun)
		if err != nil {
			return nil, err
		}
		ids[body] = receipts[0].MessageID
		switch body {
		case "commit":
			err = begun.Commit()
		case "rollback":
			err = begun.RollBack()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", body, err)
		}
	}
	sent := time.Now()
	committed, err := drain(consumer, 1, timeout)
	if err != nil {
		return nil, err
	}
	if err := first(
		same("first message", committed[0].text(), "commit"),
		same("its id", committed[0].GetMessageId(), ids["commit"]),
	); err != nil {
		return nil, err
	}
	decided, err := drain(consumer, 1, asked)
	if err != nil {
		return nil, err
	}
	if err := first(
		same("second message", decided[0].text(), "undecided"),
		same("its id", decided[0].GetMessageId(), ids["undecided"]),
		same("its tag", pointed(decided[0].GetTag()), "transaction"),
		nothing(consumer, quiet),
	); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	count := asks["undecided "+ids["undecided"]]
	// Asked twice where the answer was slow, but about nothing else.
	return facts{"asked": count, "asked_after_ms": milliseconds(askedAt.Sub(sent))},
		same("messages that the checker was asked about", asks, map[string]int{"undecided " + ids["undecided"]: max(count, 1)})
}
