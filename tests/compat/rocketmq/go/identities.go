// Two keys of different rights: what each may do, and what is refused. A line for each, which the runner judges.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// For what has to be answered or refused.
const answered = 20 * time.Second

var identities = map[string]scenario{"identities": twoKeys}

// More words: another topic, the sender's key and secret, the receiver's key and secret.
func twoKeys(env *environment) (facts, error) {
	if len(env.extra) < 5 {
		return nil, errors.New("more words: OTHER_TOPIC SENDER SECRET RECEIVER SECRET")
	}
	other := env.extra[0]
	sender := credentials.SessionCredentials{AccessKey: env.extra[1], AccessSecret: env.extra[2]}
	receiver := credentials.SessionCredentials{AccessKey: env.extra[3], AccessSecret: env.extra[4]}
	as := func(keys credentials.SessionCredentials, topic, group string) *environment {
		return &environment{endpoint: env.endpoint, topic: topic, group: group, keys: keys}
	}
	wrong := func(keys credentials.SessionCredentials) credentials.SessionCredentials {
		return credentials.SessionCredentials{AccessKey: keys.AccessKey, AccessSecret: "wrong"}
	}
	say("send", as(sender, env.topic, env.group).sends)
	say("receive", as(receiver, env.topic, env.group).receives)
	say("receive-by-sender", as(sender, env.topic, env.group).receives)
	say("send-by-receiver", as(receiver, env.topic, env.group).sends)
	say("send-elsewhere", as(sender, other, env.group).sends)
	say("receive-elsewhere", as(receiver, other, env.group).receives)
	say("receive-as-others", as(receiver, env.topic, env.group+"-others").receives)
	nobody := credentials.SessionCredentials{}
	say("anonymous-sends", as(nobody, other, env.group).sends)
	say("anonymous-sends-elsewhere", as(nobody, env.topic, env.group).sends)
	say("anonymous-receives", as(nobody, env.topic, env.group).receives)
	say("wrong-secret-sends", as(wrong(sender), env.topic, env.group).sends)
	say("wrong-secret-receives", as(wrong(receiver), env.topic, env.group).receives)
	if err := untilRevoked(as(sender, env.topic, env.group), as(receiver, env.topic, env.group)); err != nil {
		return nil, err
	}
	say("revoked-sends", as(sender, env.topic, env.group).sends)
	say("revoked-receives", as(receiver, env.topic, env.group).receives)
	return facts{}, nil
}

func say(name string, act func() error) {
	ended := make(chan error, 1)
	go func() { ended <- act() }()
	select {
	case err := <-ended:
		if err == nil {
			fmt.Println(name + ": done")
		} else {
			fmt.Println(name + ": refused: " + strings.Join(strings.Fields(err.Error()), " "))
		}
	case <-time.After(answered):
		fmt.Println(name+": no answer in", answered)
	}
}

func (env *environment) sends() error {
	producer, err := env.producer("")
	if err != nil {
		return err
	}
	if _, err := send(producer, env.message("hello")); err != nil {
		return err
	}
	return env.close()
}

// One message, acknowledged.
func (env *environment) receives() error {
	consumer, err := env.simple("", rocketmq.SUB_ALL)
	if err != nil {
		return err
	}
	if _, err := drain(consumer, 1, answered); err != nil {
		return err
	}
	return env.close()
}

// Both run when "ready" is said, for the runner to remove their keys.
func untilRevoked(sending, receiving *environment) error {
	producer, err := sending.producer("")
	if err != nil {
		return err
	}
	consumer, err := receiving.simple("", rocketmq.SUB_ALL)
	if err != nil {
		return err
	}
	if _, err := send(producer, sending.message("hello")); err != nil {
		return err
	}
	if _, err := drain(consumer, 1, answered); err != nil {
		return err
	}
	fmt.Println("ready")
	received := make(chan struct{})
	go func() {
		defer close(received)
		say("running-receiver", func() error {
			for {
				messages, err := poll(consumer, invisibleFor)
				if err != nil {
					return err
				}
				for _, message := range messages {
					if err := consumer.Ack(context.Background(), message.MessageView); err != nil {
						return err
					}
				}
			}
		})
	}()
	say("running-sender", func() error {
		for {
			if _, err := send(producer, sending.message("hello")); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	<-received
	return nil
}
