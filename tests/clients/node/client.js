// Drives kafkajs for the black-box suite: one command line for all clients, JSON lines as output (tests/clients/README.md).

import { parseArgs } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { createRequire } from 'node:module';
import kafkajs from 'kafkajs';

const { CompressionTypes, Kafka, logLevel } = kafkajs;
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
    compression: { type: 'string', default: 'none' },
    idempotence: { type: 'string', default: 'off' },
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
  compression: CompressionTypes[{ none: 'None', gzip: 'GZIP' }[options.compression]],
  // kafkajs is not idempotent unless it is told to be.
  idempotent: options.idempotence === 'off' ? false : undefined,
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
  logLevel: logLevel.WARN,
  // Standard output is for the lines of this suite.
  logCreator: () => ({ namespace, label, log }) => console.error(label, namespace, JSON.stringify(log)),
  // Five retries, the default, do not outlast a broker's lease.
  retry: { retries: job.retries >= 0 ? job.retries : 20, maxRetryTime: 3000 },
});

// One send at a time for each partition keeps its order, all partitions go at once.
async function produce() {
  const producer = kafka.producer({ allowAutoTopicCreation: false, idempotent: job.idempotent });
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
          compression: job.compression,
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
    process.stdin.on('end', finish).resume();
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      fail(-1, payload.error);
      if (!payload.restart) {
        crash(payload.error);
      }
    });
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          done += 1;
          line({
            event: 'record',
            partition,
            offset: Number(message.offset),
            key: message.key?.toString() ?? '',
            value: message.value?.toString() ?? '',
          });
          if (done >= job.count) {
            finish();
          }
        },
      })
      .catch(crash);
  });
  await consumer.disconnect();
}

async function admin() {
  const answered = (verb, fields) => line({ event: 'admin', verb, ...fields });
  const created = `${job.topic}.new`;
  const client = kafka.admin();
  await client.connect();
  await client.createTopics({ topics: [{ topic: created, numPartitions: job.partitions, replicationFactor: 1 }] });
  answered('create-topic');
  // Where there are several connections, not all know it at once.
  await sleep(300);
  answered('list-topics', { names: await client.listTopics() });
  await client.deleteTopics({ topics: [created] });
  answered('delete-topic');
  const offsets = (await client.fetchTopicOffsets(job.topic)).sort((a, b) => a.partition - b.partition);
  answered('offsets', { first: offsets.map(({ low }) => Number(low)), last: offsets.map(({ high }) => Number(high)) });
  answered('list-groups', { names: (await client.listGroups()).groups.map(({ groupId }) => groupId) });
  const [group] = (await client.describeGroups([job.group])).groups;
  answered('describe-group', { state: group.state, members: group.members.length });
  await client.deleteGroups([job.group]);
  answered('delete-group');
  await client.disconnect();
}

const { version } = createRequire(import.meta.url)('kafkajs/package.json');
line({ event: 'client', library: 'kafkajs', version });
try {
  const commands = { produce, consume, admin };
  await commands[positionals[0]]();
} catch (error) {
  fail(-1, error);
}
line({ event: 'end', done, failed });
process.exit(failed > 0 || (positionals[0] !== 'admin' && done < job.count) ? 1 : 0);
