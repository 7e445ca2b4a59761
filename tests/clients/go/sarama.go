package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

func saramaConfig(job Job) (*sarama.Config, error) {
	// Whoever reads a failure needs to know what the library did before it.
	sarama.Logger = log.New(os.Stderr, "", log.Ltime|log.Lmicroseconds)
	config := sarama.NewConfig()
	config.ClientID = "peer-sarama"
	if job.Idempotence == "off" {
		config.Producer.Idempotent = false
	}
	if job.Compression != "" {
		if err := config.Producer.Compression.UnmarshalText([]byte(job.Compression)); err != nil {
			return nil, err
		}
	}
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	switch job.Acks {
	case "all":
		config.Producer.RequiredAcks = sarama.WaitForAll
	case "1":
		config.Producer.RequiredAcks = sarama.WaitForLocal
	case "0":
		config.Producer.RequiredAcks = sarama.NoResponse
	default:
		return nil, fmt.Errorf("unknown acks %q", job.Acks)
	}
	if job.Retries >= 0 {
		config.Producer.Retry.Max = job.Retries
	} else {
		// Three tries 100 ms apart, the default, do not outlast a broker's lease.
		config.Producer.Retry.Max = 100
		config.Producer.Retry.Backoff = 300 * time.Millisecond
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	return config, nil
}

func (saramaClient) Produce(job Job, out *Output) error {
	config, err := saramaConfig(job)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{job.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := connectToLeaders(client, job); err != nil {
		return err
	}
	producer, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return err
	}
	var reports, unreported sync.WaitGroup
	reports.Add(2)
	unreported.Add(job.Count)
	go func() {
		defer reports.Done()
		for message := range producer.Successes() {
			out.Delivered(message.Metadata.(int), message.Partition, message.Offset)
			unreported.Done()
		}
	}()
	go func() {
		defer reports.Done()
		for failure := range producer.Errors() {
			out.Failed(failure.Msg.Metadata.(int), failure.Err)
			unreported.Done()
		}
	}()
	started := time.Now()
	for n := range job.Count {
		job.Pace(started, n)
		index := job.First + n
		producer.Input() <- &sarama.ProducerMessage{
			Topic:     job.Topic,
			Partition: int32(job.Partition(index)),
			Key:       sarama.StringEncoder(Key(index)),
			Value:     sarama.StringEncoder(Value(index)),
			Metadata:  index,
		}
	}
	// A producer that is closing gives up what it would have tried again.
	unreported.Wait()
	producer.AsyncClose()
	reports.Wait()
	return nil
}

// connectToLeaders waits until the leaders of all partitions are connected. Producers that open one connection at the
// same time can find it "not connected" while it is being made, which costs a retry that nobody asked for.
func connectToLeaders(client sarama.Client, job Job) error {
	for partition := range int32(job.Partitions) {
		leader, err := client.Leader(job.Topic, partition)
		if err != nil {
			return err
		}
		if connected, err := leader.Connected(); err != nil || !connected {
			return fmt.Errorf("leader of partition %d: connected %t, %v", partition, connected, err)
		}
	}
	return nil
}

func (saramaClient) Consume(job Job, out *Output) error {
	config, err := saramaConfig(job)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), job.Timeout)
	defer cancel()
	go func() {
		<-job.ToldToEnd
		cancel()
	}()
	if job.Group != "" {
		return saramaGroup(ctx, cancel, config, job, out)
	}
	consumer, err := sarama.NewConsumer([]string{job.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	var readers sync.WaitGroup
	for partition := range int32(job.Partitions) {
		reader, err := consumer.ConsumePartition(job.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			defer reader.Close()
			for {
				select {
				case message := <-reader.Messages():
					out.Record(message.Partition, message.Offset, message.Key, message.Value)
					if out.Records() >= job.Count {
						cancel()
					}
				case failure := <-reader.Errors():
					out.Failed(-1, failure)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	readers.Wait()
	return nil
}

func saramaGroup(ctx context.Context, cancel context.CancelFunc, config *sarama.Config, job Job, out *Output) error {
	group, err := sarama.NewConsumerGroup([]string{job.Bootstrap}, job.Group, config)
	if err != nil {
		return err
	}
	defer group.Close()
	go func() {
		for failure := range group.Errors() {
			out.Failed(-1, failure)
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{job.Topic}, &saramaHandler{job, out, cancel}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// saramaHandler reads one generation of the group.
type saramaHandler struct {
	job    Job
	out    *Output
	cancel context.CancelFunc
}

func (h *saramaHandler) Setup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.out.Record(message.Partition, message.Offset, message.Key, message.Value)
			session.MarkMessage(message, "")
			if h.out.Records() >= h.job.Count {
				h.cancel()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (saramaClient) Admin(job Job, out *Output) error {
	config, err := saramaConfig(job)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient([]string{job.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	detail := &sarama.TopicDetail{NumPartitions: int32(job.Partitions), ReplicationFactor: 1}
	if err := admin.CreateTopic(job.NewTopic(), detail, false); err != nil {
		return fmt.Errorf("create-topic: %w", err)
	}
	out.Admin("create-topic", nil)
	time.Sleep(untilListed)
	topics, err := admin.ListTopics()
	if err != nil {
		return fmt.Errorf("list-topics: %w", err)
	}
	out.Admin("list-topics", map[string]any{"names": keys(topics)})
	if err := admin.DeleteTopic(job.NewTopic()); err != nil {
		return fmt.Errorf("delete-topic: %w", err)
	}
	out.Admin("delete-topic", nil)
	var first, last []int64
	for partition := range int32(job.Partitions) {
		low, err := client.GetOffset(job.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("offsets: %w", err)
		}
		high, err := client.GetOffset(job.Topic, partition, sarama.OffsetNewest)
		if err != nil {
			return fmt.Errorf("offsets: %w", err)
		}
		first, last = append(first, low), append(last, high)
	}
	out.Admin("offsets", map[string]any{"first": first, "last": last})
	groups, err := admin.ListConsumerGroups()
	if err != nil {
		return fmt.Errorf("list-groups: %w", err)
	}
	out.Admin("list-groups", map[string]any{"names": keys(groups)})
	described, err := admin.DescribeConsumerGroups([]string{job.Group})
	if err != nil {
		return fmt.Errorf("describe-group: %w", err)
	}
	out.Admin("describe-group", map[string]any{"state": described[0].State, "members": len(described[0].Members)})
	if err := admin.DeleteConsumerGroup(job.Group); err != nil {
		return fmt.Errorf("delete-group: %w", err)
	}
	out.Admin("delete-group", nil)
	return nil
}
