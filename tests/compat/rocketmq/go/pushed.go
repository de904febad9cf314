// PushConsumer: every message once, retries, dead letters; and the order of FIFO messages, with SimpleConsumer too.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
)

const (
	pushTimeout = 60 * time.Second
	// The original's default back-off is 10 s, then 30 s.
	retries = 150 * time.Second
)

var pushed = map[string]scenario{"push": push, "push-retry": pushRetry, "push-dead": pushDead, "fifo": fifo}

// 500 messages, each exactly once; and the consumer is stopped in order, which waits for its long poll.
func push(env *environment) (facts, error) {
	number := env.number(0, 500)
	to := &listener{}
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	consumer, err := env.push(to)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var lock sync.Mutex
	var group sync.WaitGroup
	var failures []error
	ids := map[string]bool{}
	var expected []string
	for index := range number {
		group.Add(1)
		message := env.message(fmt.Sprint("push ", index))
		expected = append(expected, string(message.Body))
		producer.SendAsync(context.Background(), message, func(_ context.Context, receipts []*rocketmq.SendReceipt, err error) {
			defer group.Done()
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failures = append(failures, err)
				return
			}
			ids[receipts[0].MessageID] = true
		})
	}
	group.Wait()
	sent := time.Now()
	if err := first(errors.Join(failures...), same("message ids", len(ids), number)); err != nil {
		return nil, err
	}
	came, err := to.wait(number, pushTimeout)
	if err != nil {
		return nil, err
	}
	last := came[number-1].at
	time.Sleep(quiet)
	if err := same("bodies", texts(to.seen()), sorted(expected)); err != nil {
		return nil, err
	}
	closing := time.Now()
	err = consumer.GracefulStop()
	return facts{
		"messages": number, "sent_ms": milliseconds(sent.Sub(began)), "received_ms": milliseconds(last.Sub(began)),
		"close_ms": milliseconds(time.Since(closing)),
	}, err
}

// The listener fails the first two attempts of each message: attempts 1, 2 and 3 come.
func pushRetry(env *environment) (facts, error) {
	to := &listener{done: func(message *rocketmq.MessageView) bool { return message.GetDeliveryAttempt() >= 3 }}
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	if _, err := env.push(to); err != nil {
		return nil, err
	}
	expected := map[string][]int32{}
	for index := range 5 {
		body := fmt.Sprint("retry ", index)
		expected[body] = []int32{1, 2, 3}
		if _, err := send(producer, env.message(body)); err != nil {
			return nil, err
		}
	}
	if _, err := to.wait(15, retries); err != nil {
		return nil, err
	}
	time.Sleep(quiet)
	return facts{"messages": 5, "gaps_ms": gaps(to.seen())}, same("attempts", attempts(to.seen()), expected)
}

// The listener always fails: so many attempts as the group has, then no more.
func pushDead(env *environment) (facts, error) {
	most, quietly := env.number(0, 3), env.number(1, 10)
	to := &listener{done: func(*rocketmq.MessageView) bool { return false }}
	producer, err := env.producer("")
	if err != nil {
		return nil, err
	}
	if _, err := env.push(to); err != nil {
		return nil, err
	}
	if _, err := send(producer, env.message("dead")); err != nil {
		return nil, err
	}
	if _, err := to.wait(most, retries); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(quietly) * time.Second)
	var expected []int32
	for attempt := range most {
		expected = append(expected, int32(attempt+1))
	}
	return facts{"attempts": most, "quiet_s": quietly, "gaps_ms": gaps(to.seen())},
		same("attempts", attempts(to.seen()), map[string][]int32{"dead": expected})
}

func attempts(all []received) map[string][]int32 {
	found := map[string][]int32{}
	for _, one := range all {
		found[one.text()] = append(found[one.text()], one.GetDeliveryAttempt())
	}
	return found
}

// Between the attempts of the first message.
func gaps(all []received) []float64 {
	found := []float64{}
	last := all[0]
	for _, one := range all[1:] {
		if one.text() == last.text() {
			found = append(found, milliseconds(one.at.Sub(last.at)))
			last = one
		}
	}
	return found
}

// Three message groups of 20, interleaved: the order within each is kept, by SimpleConsumer and by PushConsumer.
func fifo(env *environment) (facts, error) {
	producer, consumer, err := env.both()
	if err != nil {
		return nil, err
	}
	if err := sendGroups(env, producer, "simple"); err != nil {
		return nil, err
	}
	came, err := drain(consumer, 60, pushTimeout)
	if err := first(err, inOrder(came, "simple"), nothing(consumer, quiet)); err != nil {
		return nil, err
	}
	to := &listener{pause: 5 * time.Millisecond}
	if _, err := env.push(to); err != nil {
		return nil, err
	}
	if err := sendGroups(env, producer, "push"); err != nil {
		return nil, err
	}
	if _, err := to.wait(60, pushTimeout); err != nil {
		return nil, err
	}
	time.Sleep(quiet)
	return facts{"messages": 120, "groups": 3, "push": true}, inOrder(to.seen(), "push")
}

func sendGroups(env *environment, producer rocketmq.Producer, phase string) error {
	for index := range 20 {
		for _, group := range []string{"red", "green", "blue"} {
			message := env.message(fmt.Sprint(phase, " ", index))
			message.SetMessageGroup(group)
			if _, err := send(producer, message); err != nil {
				return err
			}
		}
	}
	return nil
}

func inOrder(all []received, phase string) error {
	if err := same("messages", len(all), 60); err != nil {
		return err
	}
	found := map[string][]string{}
	for _, one := range all {
		group := pointed(one.GetMessageGroup())
		found[group] = append(found[group], one.text())
	}
	var expected []string
	for index := range 20 {
		expected = append(expected, fmt.Sprint(phase, " ", index))
	}
	for _, group := range []string{"red", "green", "blue"} {
		if err := same("order in "+group, found[group], expected); err != nil {
			return err
		}
	}
	return nil
}
