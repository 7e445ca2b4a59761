// Drives kafkajs for the black-box suite: one command line for all clients, JSON lines as output (tests/clients/README.md).

import { parseArgs } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import kafkajs from 'kafkajs';

const { Kafka, logLevel } = kafkajs;
const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    bootstrap: { type: 'string' },
    topic: { type: 'string' },
    partitions: { type: 'string', default: '1' },
    count: { type: 'string', default: '0' },
    first: { type: 'string', default: '0' },
    rate: { type: 'string', default: '0' },
    retries: { type: 'string', default: '-1' },
    acks: { type: 'string', default: 'all' },
    group: { type: 'string', default: '' },
    'timeout-ms': { type: 'string', default: '60000' },
  },
});
const job = {
  topic: options.topic,
  partitions: Number(options.partitions),
  count: Number(options.count),
  first: Number(options.first),
  rate: Number(options.rate),
  retries: Number(options.retries),
  acks: { all: -1, 1: 1, 0: 0 }[options.acks],
  group: options.group,
  timeoutMs: Number(options['timeout-ms']),
};

let done = 0;
let failed = 0;
const line = (fields) => console.log(JSON.stringify(fields));
const fail = (index, error) => {
  failed += 1;
  line({ event: 'failed', index, error: String(error) });
};

const kafka = new Kafka({
  clientId: 'peer-kafkajs',
  brokers: [options.bootstrap],
  logLevel: logLevel.NOTHING,
  // Five retries, the default, do not outlast a broker's lease.
  retry: { retries: job.retries >= 0 ? job.retries : 20, maxRetryTime: 3000 },
});

// One send at a time for each partition keeps its order, all partitions go at once.
async function produce() {
  const producer = kafka.producer({ allowAutoTopicCreation: false, idempotent: false });
  await producer.connect();
  const started = Date.now();
  const lanes = Array.from({ length: job.partitions }, () => Promise.resolve());
  for (let n = 0; n < job.count; n += 1) {
    const index = job.first + n;
    const partition = index % job.partitions;
    if (job.rate > 0) {
      await sleep(Math.max(0, started + (n * 1000) / job.rate - Date.now()));
    }
    lanes[partition] = lanes[partition].then(async () => {
      try {
        const [answer] = await producer.send({
          topic: job.topic,
          acks: job.acks,
          messages: [{ partition, key: `key-${index}`, value: `value-${index}` }],
        });
        done += 1;
        line({ event: 'delivered', index, partition, offset: Number(answer?.baseOffset ?? -1) });
      } catch (error) {
        fail(index, error);
      }
    });
  }
  await Promise.all(lanes);
  await producer.disconnect();
}

async function consume() {
  if (!job.group) {
    throw new Error('kafkajs reads in groups only');
  }
  const consumer = kafka.consumer({ groupId: job.group, maxWaitTimeInMs: 500 });
  await consumer.connect();
  await consumer.subscribe({ topic: job.topic, fromBeginning: true });
  await new Promise((finish, crash) => {
    setTimeout(finish, job.timeoutMs).unref();
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      fail(-1, payload.error);
      if (!payload.restart) {
        crash(payload.error);
      }
    });
    consumer
      .run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          done += 1;
          line({
            event: 'record',
            partition,
            offset: Number(message.offset),
            key: message.key?.toString() ?? '',
            value: message.value?.toString() ?? '',
          });
          const offset = String(BigInt(message.offset) + 1n);
          await consumer.commitOffsets([{ topic: job.topic, partition, offset }]);
          if (done >= job.count) {
            finish();
          }
        },
      })
      .catch(crash);
  });
  await consumer.disconnect();
}

try {
  const commands = { produce, consume };
  await commands[positionals[0]]();
} catch (error) {
  fail(-1, error);
}
line({ event: 'end', done, failed });
process.exit(failed > 0 || done < job.count ? 1 : 0);
