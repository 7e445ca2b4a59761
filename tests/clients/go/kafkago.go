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
	if job.Compression != "" && job.Compression != "none" {
		codecs := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
		writer.Compression = codecs[job.Compression]
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
	go func() {
		<-job.ToldToEnd
		cancel()
	}()
	config := kafka.ReaderConfig{
		Brokers:     []string{job.Bootstrap},
		Topic:       job.Topic,
		MaxWait:     500 * time.Millisecond,
		StartOffset: kafka.FirstOffset,
		// Without it every commit is a round trip of its own.
		CommitInterval: 500 * time.Millisecond,
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

func (kafkaGo) Admin(job Job, out *Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), job.Timeout)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(job.Bootstrap)}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: job.NewTopic(), NumPartitions: job.Partitions, ReplicationFactor: 1}},
	})
	if err == nil {
		err = created.Errors[job.NewTopic()]
	}
	if err != nil {
		return fmt.Errorf("create-topic: %w", err)
	}
	out.Admin("create-topic", nil)
	time.Sleep(untilListed)
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return fmt.Errorf("list-topics: %w", err)
	}
	topics := []string{}
	for _, topic := range metadata.Topics {
		topics = append(topics, topic.Name)
	}
	out.Admin("list-topics", map[string]any{"names": topics})
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{job.NewTopic()}})
	if err == nil {
		err = deleted.Errors[job.NewTopic()]
	}
	if err != nil {
		return fmt.Errorf("delete-topic: %w", err)
	}
	out.Admin("delete-topic", nil)
	var asked []kafka.OffsetRequest
	for partition := range job.Partitions {
		asked = append(asked, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
	}
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{job.Topic: asked}})
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	first, last := make([]int64, job.Partitions), make([]int64, job.Partitions)
	for _, partition := range offsets.Topics[job.Topic] {
		if partition.Error != nil {
			return fmt.Errorf("offsets: %w", partition.Error)
		}
		first[partition.Partition], last[partition.Partition] = partition.FirstOffset, partition.LastOffset
	}
	out.Admin("offsets", map[string]any{"first": first, "last": last})
	listed, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err == nil {
		err = listed.Error
	}
	if err != nil {
		return fmt.Errorf("list-groups: %w", err)
	}
	groups := []string{}
	for _, group := range listed.Groups {
		groups = append(groups, group.GroupID)
	}
	out.Admin("list-groups", map[string]any{"names": groups})
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{job.Group}})
	if err == nil {
		err = described.Groups[0].Error
	}
	if err != nil {
		return fmt.Errorf("describe-group: %w", err)
	}
	group := described.Groups[0]
	out.Admin("describe-group", map[string]any{"state": group.GroupState, "members": len(group.Members)})
	gone, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{job.Group}})
	if err == nil {
		err = gone.Errors[job.Group]
	}
	if err != nil {
		return fmt.Errorf("delete-group: %w", err)
	}
	out.Admin("delete-group", nil)
	return nil
}
