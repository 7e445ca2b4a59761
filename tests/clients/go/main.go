// Package main drives Go's Kafka clients for the black-box suite: one command line for all clients, JSON lines as output
// (tests/clients/README.md).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Job is what the command line asks for.
type Job struct {
	Bootstrap   string
	Topic       string
	Partitions  int
	Count       int
	First       int
	Rate        int
	Retries     int
	Acks        string
	Compression string
	// Idempotence is "off", or "default" for what the library does by itself.
	Idempotence string
	Group       string
	Timeout     time.Duration
	// ToldToEnd is closed when a reader is to commit, to leave its group and to end.
	ToldToEnd chan struct{}
}

// Library is one client under test. Its methods report through the output and return an error only when the job cannot be done at all.
type Library interface {
	Produce(job Job, out *Output) error
	Consume(job Job, out *Output) error
	Admin(job Job, out *Output) error
}

// modules are the libraries by name, as Go's modules call them.
var modules = map[string]string{
	"franz-go": "github.com/twmb/franz-go",
	"kafka-go": "github.com/segmentio/kafka-go",
	"sarama":   "github.com/IBM/sarama",
}

func main() {
	libraries := map[string]Library{"sarama": saramaClient{}, "kafka-go": kafkaGo{}, "franz-go": franzGo{}}
	if len(os.Args) < 3 || libraries[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: client sarama|kafka-go|franz-go produce|consume|admin --bootstrap HOST:PORT --topic TOPIC ...")
		os.Exit(2)
	}
	var job Job
	var timeoutMs int
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	flags.StringVar(&job.Bootstrap, "bootstrap", "", "host:port of the first broker")
	flags.StringVar(&job.Topic, "topic", "", "topic")
	flags.IntVar(&job.Partitions, "partitions", 1, "partitions of the topic")
	flags.IntVar(&job.Count, "count", 0, "records")
	flags.IntVar(&job.First, "first", 0, "index of the first record")
	flags.IntVar(&job.Rate, "rate", 0, "records a second, 0 for as fast as possible")
	flags.IntVar(&job.Retries, "retries", -1, "retries of the library, -1 for its default")
	flags.StringVar(&job.Acks, "acks", "all", "all, 1 or 0")
	flags.StringVar(&job.Compression, "compression", "", "none, gzip, snappy, lz4, zstd; empty for the library's default")
	flags.StringVar(&job.Idempotence, "idempotence", "off", "off or default")
	flags.StringVar(&job.Group, "group", "", "consumer group, empty for none")
	flags.IntVar(&timeoutMs, "timeout-ms", 60000, "longest run")
	if err := flags.Parse(os.Args[3:]); err != nil {
		os.Exit(2)
	}
	job.Timeout = time.Duration(timeoutMs) * time.Millisecond
	job.ToldToEnd = make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(job.ToldToEnd)
	}()

	out := &Output{}
	out.Client(os.Args[1])
	var err error
	switch os.Args[2] {
	case "produce":
		err = libraries[os.Args[1]].Produce(job, out)
	case "consume":
		err = libraries[os.Args[1]].Consume(job, out)
	case "admin":
		err = libraries[os.Args[1]].Admin(job, out)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[2])
	}
	if err != nil {
		out.Failed(-1, err)
	}
	out.End()
	if out.failed > 0 || (os.Args[2] != "admin" && out.done < job.Count) {
		os.Exit(1)
	}
}

// Key of record i.
func Key(i int) string { return fmt.Sprintf("key-%d", i) }

// Value of record i.
func Value(i int) string { return fmt.Sprintf("value-%d", i) }

// Partition of record i.
func (j Job) Partition(i int) int { return i % j.Partitions }

// untilListed is how long a new topic may take to be listed: where there are several connections, not all know it at once.
const untilListed = 300 * time.Millisecond

// NewTopic is the one that is created and deleted again.
func (j Job) NewTopic() string { return j.Topic + ".new" }

// keys of a map whose values nobody asks for.
func keys[V any](all map[string]V) []string {
	names := []string{}
	for name := range all {
		names = append(names, name)
	}
	return names
}

// Pace waits until record n (counted from 0) may be sent.
func (j Job) Pace(started time.Time, n int) {
	if j.Rate > 0 {
		time.Sleep(time.Until(started.Add(time.Duration(n) * time.Second / time.Duration(j.Rate))))
	}
}

// Output writes the JSON lines and counts them.
type Output struct {
	mutex  sync.Mutex
	done   int
	failed int
}

func (o *Output) line(fields map[string]any) {
	text, _ := json.Marshal(fields)
	fmt.Println(string(text))
}

// Client reports the library and its version.
func (o *Output) Client(library string) {
	version := "unknown"
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			if module.Path == modules[library] {
				version = module.Version
			}
		}
	}
	o.line(map[string]any{"event": "client", "library": library, "version": version})
}

// Admin reports the answer to an administrative request.
func (o *Output) Admin(verb string, fields map[string]any) {
	answer := map[string]any{"event": "admin", "verb": verb}
	for name, value := range fields {
		answer[name] = value
	}
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.line(answer)
}

// Delivered reports an acknowledged record.
func (o *Output) Delivered(index int, partition int32, offset int64) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.done++
	o.line(map[string]any{"event": "delivered", "index": index, "partition": partition, "offset": offset})
}

// Failed reports a record that was given up, or with index -1 an error of the client as a whole.
func (o *Output) Failed(index int, err error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.failed++
	o.line(map[string]any{"event": "failed", "index": index, "error": err.Error()})
}

// Record reports a consumed record.
func (o *Output) Record(partition int32, offset int64, key, value []byte) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.done++
	o.line(map[string]any{"event": "record", "partition": partition, "offset": offset, "key": string(key), "value": string(value)})
}

// Records counts what was consumed so far.
func (o *Output) Records() int {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.done
}

// End reports the totals.
func (o *Output) End() {
	o.line(map[string]any{"event": "end", "done": o.done, "failed": o.failed})
}
