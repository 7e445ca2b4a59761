package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGo struct{}

func (kafkaGo) Produce(job Job, out *Output) error {
	acks, known := map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}[job.Acks]
	if !known {
		return fmt.Errorf("unknown acks %q", job.Acks)
	}
	var reports sync.WaitGroup
	writer := &kafka.Writer{
		Addr:         kafka.TCP(job.Bootstrap),
		Topic:        job.Topic,
		RequiredAcks: acks,
		Async:        true,
		BatchTimeout: 10 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(message kafka.Message, partitions ...int) int {
			return partitions[job.Partition(message.WriterData.(int))%len(partitions)]
		}),
		Completion: func(messages []kafka.Message, err error) {
			for _, message := range messages {
				index := message.WriterData.(int)
				if err != nil {
					out.Failed(index, err)
				} else {
					out.Delivered(index, int32(message.Partition), message.Offset)
				}
				reports.Done()
			}
		},
	}
	if job.Retries >= 0 {
		writer.MaxAttempts = job.Retries + 1
	} else {
		writer.MaxAttempts = 100
	}
	started := time.Now()
	for n := range job.Count {
		job.Pace(started, n)
		index := job.First + n
		reports.Add(1)
		err := writer.WriteMessages(context.Background(), kafka.Message{
			Key:        []byte(Key(index)),
			Value:      []byte(Value(index)),
			WriterData: index,
		})
		if err != nil {
			out.Failed(index, err)
			reports.Done()
		}
	}
	reports.Wait()
	return writer.Close()
}

func (kafkaGo) Consume(job Job, out *Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), job.Timeout)
	defer cancel()
	config := kafka.ReaderConfig{
		Brokers:     []string{job.Bootstrap},
		Topic:       job.Topic,
		MaxWait:     500 * time.Millisecond,
		StartOffset: kafka.FirstOffset,
	}
	var readers sync.WaitGroup
	if job.Group != "" {
		config.GroupID = job.Group
		readers.Add(1)
		go kafkaGoRead(ctx, cancel, config, job, out, &readers)
	} else {
		for partition := range job.Partitions {
			config.Partition = partition
			readers.Add(1)
			go kafkaGoRead(ctx, cancel, config, job, out, &readers)
		}
	}
	readers.Wait()
	return nil
}

func kafkaGoRead(ctx context.Context, cancel context.CancelFunc, config kafka.ReaderConfig, job Job, out *Output, readers *sync.WaitGroup) {
	defer readers.Done()
	reader := kafka.NewReader(config)
	defer reader.Close()
	for {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				out.Failed(-1, err)
			}
			return
		}
		out.Record(int32(message.Partition), message.Offset, message.Key, message.Value)
		if config.GroupID != "" {
			// The last commit must not be cut off by the end of the job itself.
			if err := reader.CommitMessages(context.Background(), message); err != nil {
				out.Failed(-1, err)
			}
		}
		if out.Records() >= job.Count {
			cancel()
		}
	}
}
