// The AWS SDK for Go v2 as it is: all that it is told is the endpoint, by AWS_ENDPOINT_URL_SQS.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
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

func receive(client *sqs.Client, url *string) types.Message {
	for turn := 0; turn < 20; turn++ {
		answer := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: 1, WaitTimeSeconds: 2, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		}))
		if len(answer.Messages) > 0 {
			return answer.Messages[0]
		}
	}
	log.Fatal("nothing was received")
	panic("unreachable")
}

func main() {
	client := sqs.NewFromConfig(must(config.LoadDefaultConfig(ctx)))
	url := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("go")})).QueueUrl

	// Sent, received, given back, deleted: the SDK checks the MD5s.
	must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("grüße"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"price": {DataType: aws.String("Number"), StringValue: aws.String("3.5")},
			"raw":   {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 255}},
		},
	}))
	first := receive(client, url)
	check(*first.Body == "grüße" && len(first.MessageAttributes["raw"].BinaryValue) == 3, "received", *first.Body)
	must(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: first.ReceiptHandle, VisibilityTimeout: 0,
	}))
	again := receive(client, url)
	check(again.Attributes["ApproximateReceiveCount"] == "2", "receives", again.Attributes)
	must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: again.ReceiptHandle}))

	// Delays: a second, and twenty years.
	begun := time.Now()
	must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: []types.SendMessageBatchRequestEntry{
		{Id: aws.String("soon"), MessageBody: aws.String("soon"), DelaySeconds: 1},
		{Id: aws.String("far"), MessageBody: aws.String("far"), DelaySeconds: 20 * 365 * 86400},
	}}))
	soon := receive(client, url)
	check(*soon.Body == "soon" && time.Since(begun) >= time.Second, "delayed", time.Since(begun))
	counts := must(client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url, AttributeNames: []types.QueueAttributeName{"All"},
	}))
	check(counts.Attributes["ApproximateNumberOfMessagesDelayed"] == "1", "counts", counts.Attributes)

	// Order, and what was sent twice.
	fifo := must(client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName:  aws.String("go.fifo"),
		Attributes: map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"},
	})).QueueUrl
	for _, body := range []string{"one", "two", "two", "three"} {
		must(client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: fifo, MessageBody: aws.String(body), MessageGroupId: aws.String("g"),
		}))
	}
	for _, body := range []string{"one", "two", "three"} {
		next := receive(client, fifo)
		check(*next.Body == body, "order", *next.Body)
		must(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: fifo, ReceiptHandle: next.ReceiptHandle}))
	}

	// Errors by their types.
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
	var missing *types.QueueDoesNotExist
	check(errors.As(err, &missing), "error", err)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String("nonsense")})
	var invalid *types.ReceiptHandleIsInvalid
	check(errors.As(err, &invalid), "error", err)
	for _, each := range []*string{url, fifo} {
		must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: each}))
	}
	fmt.Println("go: ok")
}
