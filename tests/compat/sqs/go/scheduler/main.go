// The AWS SDK for Go v2 as it is, for EventBridge Scheduler and the queues that are its targets.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	queues "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var ctx = context.Background()

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(holds bool, what string, found any) {
	if !holds {
		log.Fatalf("%s: %v", what, found)
	}
}

func receive(client *sqs.Client, url *string) queues.Message {
	for turn := 0; turn < 20; turn++ {
		answer := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 2}))
		if len(answer.Messages) > 0 {
			return answer.Messages[0]
		}
	}
	log.Fatal("nothing was received")
	panic("unreachable")
}

func main() {
	settings := must(config.LoadDefaultConfig(ctx))
	sender, client := sqs.NewFromConfig(settings), scheduler.NewFromConfig(settings)
	url := must(sender.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go-reports")})).QueueUrl
	arn := must(sender.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url, AttributeNames: []queues.QueueAttributeName{"QueueArn"},
	})).Attributes["QueueArn"]
	target := &types.Target{
		Arn: aws.String(arn), RoleArn: aws.String("arn:aws:iam::000000000000:role/any"), Input: aws.String("make it"),
	}
	off := &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff}

	// Once, in two seconds: sent at its time, and then gone.
	due := time.Now().UTC().Add(2 * time.Second).Truncate(time.Second)
	must(client.CreateSchedule(ctx, &scheduler.CreateScheduleInput{
		Name: aws.String("once"), ScheduleExpression: aws.String("at(" + due.Format("2006-01-02T15:04:05") + ")"),
		ActionAfterCompletion: types.ActionAfterCompletionDelete, FlexibleTimeWindow: off, Target: target,
	}))
	message := receive(sender, url)
	check(*message.Body == "make it" && !time.Now().Before(due), "received", *message.Body)
	must(sender.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: message.ReceiptHandle}))

	// A group with tags, a schedule in it, its change, the same request again.
	group := must(client.CreateScheduleGroup(ctx, &scheduler.CreateScheduleGroupInput{
		Name: aws.String("go"), Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("shop")}},
	}))
	tags := must(client.ListTagsForResource(ctx, &scheduler.ListTagsForResourceInput{ResourceArn: group.ScheduleGroupArn})).Tags
	check(len(tags) == 1 && *tags[0].Value == "shop", "tags", tags)
	start := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	daily := &scheduler.CreateScheduleInput{
		Name: aws.String("daily"), GroupName: aws.String("go"), ScheduleExpression: aws.String("cron(0 8 * * ? *)"),
		ScheduleExpressionTimezone: aws.String("Europe/Berlin"), ClientToken: aws.String("token-1"), StartDate: &start,
		FlexibleTimeWindow: off, Target: target,
	}
	first, again := must(client.CreateSchedule(ctx, daily)), must(client.CreateSchedule(ctx, daily))
	check(*first.ScheduleArn == *again.ScheduleArn, "repeated", *again.ScheduleArn)
	other := *daily
	other.Description = aws.String("another")
	_, err := client.CreateSchedule(ctx, &other)
	var conflict *types.ConflictException
	check(errors.As(err, &conflict), "error", err)
	must(client.UpdateSchedule(ctx, &scheduler.UpdateScheduleInput{
		Name: daily.Name, GroupName: daily.GroupName, ScheduleExpression: aws.String("rate(2 hours)"),
		State: types.ScheduleStateDisabled, StartDate: &start, FlexibleTimeWindow: off, Target: target,
	}))
	shown := must(client.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: daily.Name, GroupName: daily.GroupName}))
	check(*shown.ScheduleExpression == "rate(2 hours)" && shown.State == types.ScheduleStateDisabled, "shown", shown)
	check(shown.StartDate.Equal(start), "start", shown.StartDate)
	page := must(client.ListSchedules(ctx, &scheduler.ListSchedulesInput{GroupName: daily.GroupName, NamePrefix: aws.String("da")}))
	check(len(page.Schedules) == 1 && *page.Schedules[0].Target.Arn == arn, "page", page.Schedules)

	// Errors by their types.
	_, err = client.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: aws.String("none")})
	var missing *types.ResourceNotFoundException
	check(errors.As(err, &missing), "error", err)
	_, err = client.CreateSchedule(ctx, &scheduler.CreateScheduleInput{
		Name: aws.String("bad"), ScheduleExpression: aws.String("often"), FlexibleTimeWindow: off, Target: target,
	})
	var invalid *types.ValidationException
	check(errors.As(err, &invalid), "error", err)
	must(client.DeleteScheduleGroup(ctx, &scheduler.DeleteScheduleGroupInput{Name: aws.String("go")}))
	_, err = client.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: daily.Name, GroupName: daily.GroupName})
	check(errors.As(err, &missing), "error", err)
	must(sender.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	fmt.Println("scheduler-go: ok")
}
