// Orderly and broadcasting consumers, transactions, pulling, and a broker that is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	lines   = 3
	perLine = 20
	run     = 25 * time.Second
)

// Messages of one key stay in the order in which they were sent; one of each is refused once.
func orderly(n names) (map[string]any, error) {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{n.endpoint}),
		producer.WithGroupName(n.group+"-producers"), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	for i := 0; i < perLine; i++ {
		for line := 0; line < lines; line++ {
			message := primitive.NewMessage(n.topic, []byte(fmt.Sprintf("%d:%d", line, i)))
			message.WithShardingKey(strconv.Itoa(line))
			if _, err = p.SendSync(context.Background(), message); err != nil {
				return nil, err
			}
		}
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, never, consumer.WithConsumerOrder(true))
	if err != nil {
		return nil, err
	}
	if err = box.await(lines * perLine); err != nil {
		return nil, err
	}
	next := map[string]int{}
	for _, message := range box.messages {
		line, number, _ := strings.Cut(string(message.Body), ":")
		if number != strconv.Itoa(next[line]) {
			return nil, fmt.Errorf("%s came after %d of its line", message.Body, next[line])
		}
		next[line]++
	}
	return nil, nil
}

// Each consumer of the group has all.
func broadcast(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	var boxes []*inbox
	for _, instance := range []string{"one", "two"} {
		box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, never,
			consumer.WithConsumerModel(consumer.BroadCasting), consumer.WithInstance(n.group+instance))
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, box)
	}
	for i := 0; i < 8; i++ {
		if _, err = p.SendSync(context.Background(), primitive.NewMessage(n.topic, []byte(strconv.Itoa(i)))); err != nil {
			return nil, err
		}
	}
	for _, box := range boxes {
		if err = box.await(8); err != nil {
			return nil, err
		}
		if box.bodies() != "0 1 2 3 4 5 6 7" {
			return nil, fmt.Errorf("bodies: %s", box.bodies())
		}
	}
	return nil, nil
}

type listener struct{}

func (listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch string(message.Body) {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (listener) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func transaction(n names) (map[string]any, error) {
	p, err := rocketmq.NewTransactionProducer(listener{}, producer.WithNameServer([]string{n.endpoint}),
		producer.WithGroupName(n.group+"-producers"))
	if err != nil {
		return nil, err
	}
	if err = p.Start(); err != nil {
		return nil, err
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, never)
	if err != nil {
		return nil, err
	}
	for _, body := range []string{"commit", "rollback", "ask"} {
		if _, err = p.SendMessageInTransaction(context.Background(), primitive.NewMessage(n.topic, []byte(body))); err != nil {
			return nil, err
		}
	}
	// The broker asks after a minute.
	if err = box.awaitFor(2, 2*wait); err != nil {
		return nil, err
	}
	if box.bodies() != "ask commit" {
		return nil, fmt.Errorf("bodies: %s", box.bodies())
	}
	return nil, nil
}

// A pull consumer of one tag.
func pull(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	for i := 0; i < 8; i++ {
		message := primitive.NewMessage(n.topic, []byte(strconv.Itoa(i))).WithTag([]string{"even", "odd"}[i%2])
		if _, err = p.SendSync(context.Background(), message); err != nil {
			return nil, err
		}
	}
	c, err := rocketmq.NewPullConsumer(consumer.WithNameServer([]string{n.endpoint}), consumer.WithGroupName(n.group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err = c.Subscribe(n.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "even"}); err != nil {
		return nil, err
	}
	if err = c.Start(); err != nil {
		return nil, err
	}
	box := &inbox{at: map[string]time.Time{}}
	for end := time.Now().Add(wait); len(box.messages) < 4; {
		if time.Now().After(end) {
			return nil, fmt.Errorf("only %q came", box.bodies())
		}
		request, err := c.Poll(context.Background(), 5*time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, message := range request.GetMsgList() {
			box.add(message)
		}
		c.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	if box.bodies() != "0 2 4 6" {
		return nil, fmt.Errorf("bodies: %s", box.bodies())
	}
	return nil, nil
}

// The broker is killed meanwhile. What was acknowledged arrives, and none of it early; one in ten is refused first.
func restarts(n names) (map[string]any, error) {
	p, err := n.producer()
	if err != nil {
		return nil, err
	}
	refuse := func(message *primitive.MessageExt) bool {
		return message.ReconsumeTimes == 0 && strings.HasSuffix(string(message.Body), "7")
	}
	box, err := n.collect(n.topic, n.group, consumer.MessageSelector{}, refuse)
	if err != nil {
		return nil, err
	}
	due, acknowledged, failed := map[string]time.Time{}, map[string]bool{}, 0
	fmt.Fprintln(os.Stderr, "ready")
	for i, end := 0, time.Now().Add(run); time.Now().Before(end); i++ {
		body, level := strconv.Itoa(i), i%3
		due[body] = time.Now().Add([]time.Duration{0, time.Second, 5 * time.Second}[level])
		message := primitive.NewMessage(n.topic, []byte(body)).WithDelayTimeLevel(level)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if _, err := p.SendSync(ctx, message); err == nil {
			acknowledged[body] = true
		} else {
			failed++
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		time.Sleep(10 * time.Millisecond)
	}
	missing := 0
	for end := time.Now().Add(2 * wait); ; time.Sleep(100 * time.Millisecond) {
		missing = 0
		box.lock.Lock()
		for body := range acknowledged {
			if _, came := box.at[body]; !came {
				missing++
			}
		}
		box.lock.Unlock()
		if missing == 0 {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%d of %d did not come", missing, len(acknowledged))
		}
	}
	box.lock.Lock()
	defer box.lock.Unlock()
	for body, at := range box.at {
		if late := at.Sub(due[body]); late < -time.Millisecond {
			return nil, fmt.Errorf("%s came early: %s", body, late)
		}
	}
	again := len(box.messages) - len(box.at)
	return map[string]any{"sent": len(acknowledged), "failed": failed, "again": again}, nil
}
