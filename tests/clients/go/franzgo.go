package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzGo struct{}

func franzGoOptions(job Job) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(job.Bootstrap),
		kgo.ClientID("peer-franz-go"),
		// Whoever reads a failure needs to know what the library did before it.
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	}
}

func (franzGo) Produce(job Job, out *Output) error {
	options := append(franzGoOptions(job), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(job.Topic))
	if job.Idempotence == "off" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	switch job.Acks {
	case "all":
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()))
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()))
	default:
		return fmt.Errorf("unknown acks %q", job.Acks)
	}
	if job.Retries >= 0 {
		options = append(options, kgo.RecordRetries(job.Retries))
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	if codec, known := codecs[job.Compression]; known {
		options = append(options, kgo.ProducerBatchCompression(codec))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var reports sync.WaitGroup
	reports.Add(job.Count)
	started := time.Now()
	for n := range job.Count {
		job.Pace(started, n)
		index := job.First + n
		record := &kgo.Record{
			Partition: int32(job.Partition(index)),
			Key:       []byte(Key(index)),
			Value:     []byte(Value(index)),
		}
		client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
			defer reports.Done()
			if err != nil {
				out.Failed(index, err)
			} else {
				out.Delivered(index, record.Partition, record.Offset)
			}
		})
	}
	reports.Wait()
	return nil
}

func (franzGo) Consume(job Job, out *Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), job.Timeout)
	defer cancel()
	go func() {
		<-job.ToldToEnd
		cancel()
	}()
	options := append(franzGoOptions(job), kgo.ConsumeTopics(job.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if job.Group != "" {
		options = append(options, kgo.ConsumerGroup(job.Group))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil && out.Records() < job.Count {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil {
				out.Failed(-1, fmt.Errorf("%s/%d: %w", topic, partition, err))
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			out.Record(record.Partition, record.Offset, record.Key, record.Value)
		})
	}
	if job.Group != "" {
		// What was polled last is not yet marked for the library's own commits.
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			out.Failed(-1, fmt.Errorf("the last commit: %w", err))
		}
	}
	return nil
}

func (franzGo) Admin(job Job, out *Output) error {
	ctx, cancel := context.WithTimeout(context.Background(), job.Timeout)
	defer cancel()
	client, err := kgo.NewClient(franzGoOptions(job)...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, int32(job.Partitions), 1, nil, job.NewTopic()); err != nil {
		return fmt.Errorf("create-topic: %w", err)
	}
	out.Admin("create-topic", nil)
	time.Sleep(untilListed)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list-topics: %w", err)
	}
	out.Admin("list-topics", map[string]any{"names": keys(topics)})
	if _, err := admin.DeleteTopic(ctx, job.NewTopic()); err != nil {
		return fmt.Errorf("delete-topic: %w", err)
	}
	out.Admin("delete-topic", nil)
	starts, err := admin.ListStartOffsets(ctx, job.Topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, job.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	first, last := make([]int64, job.Partitions), make([]int64, job.Partitions)
	starts.Each(func(offset kadm.ListedOffset) { first[offset.Partition] = offset.Offset })
	ends.Each(func(offset kadm.ListedOffset) { last[offset.Partition] = offset.Offset })
	out.Admin("offsets", map[string]any{"first": first, "last": last})
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return fmt.Errorf("list-groups: %w", err)
	}
	out.Admin("list-groups", map[string]any{"names": groups.Groups()})
	described, err := admin.DescribeGroups(ctx, job.Group)
	if err == nil {
		err = described.Error()
	}
	if err != nil {
		return fmt.Errorf("describe-group: %w", err)
	}
	group := described[job.Group]
	out.Admin("describe-group", map[string]any{"state": group.State, "members": len(group.Members)})
	if _, err := admin.DeleteGroup(ctx, job.Group); err != nil {
		return fmt.Errorf("delete-group: %w", err)
	}
	out.Admin("delete-group", nil)
	return nil
}
