import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Drives the Java client for the black-box suite: one command line for all clients, JSON lines as output (tests/clients/README.md). */
public final class Client {
    private static int done;
    private static int failed;
    private static volatile boolean toldToEnd;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            System.err.println("usage: Client produce|consume|admin --bootstrap HOST:PORT --topic TOPIC ...");
            System.exit(2);
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i].substring(2), arguments[i + 1]);
        }
        System.out.println("{\"event\":\"client\",\"library\":\"kafka-clients\",\"version\":" + quoted(AppInfoParser.getVersion()) + "}");
        Thread listening = new Thread(Client::waitUntilToldToEnd);
        listening.setDaemon(true);
        listening.start();
        try {
            switch (arguments[0]) {
                case "produce" -> produce(options);
                case "consume" -> consume(options);
                case "admin" -> admin(options);
                default -> throw new IllegalArgumentException("unknown command " + arguments[0]);
            }
        } catch (Exception error) {
            failed(-1, error);
        }
        System.out.println("{\"event\":\"end\",\"done\":" + done + ",\"failed\":" + failed + "}");
        System.out.flush();
        System.exit(failed > 0 || (!"admin".equals(arguments[0]) && done < number(options, "count", 0)) ? 1 : 0);
    }

    private static void waitUntilToldToEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException closed) {
            // Whoever cannot be told any more is alone, and ends too.
        }
        toldToEnd = true;
    }

    private static void produce(Map<String, String> options) throws InterruptedException {
        int partitions = number(options, "partitions", 1);
        int first = number(options, "first", 0);
        int rate = number(options, "rate", 0);
        Properties settings = settings(options);
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        if ("off".equals(options.get("idempotence"))) {
            settings.put("enable.idempotence", "false");
        }
        if (options.containsKey("compression")) {
            settings.put("compression.type", options.get("compression"));
        }
        settings.put("acks", options.getOrDefault("acks", "all"));
        if (number(options, "retries", -1) >= 0) {
            settings.put("retries", options.get("retries"));
        }
        long started = System.nanoTime();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int n = 0; n < number(options, "count", 0); n++) {
                if (rate > 0) {
                    long wait = started + n * 1_000_000_000L / rate - System.nanoTime();
                    Thread.sleep(Math.max(0, wait / 1_000_000));
                }
                int index = first + n;
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(options.get("topic"), index % partitions, "key-" + index, "value-" + index);
                producer.send(record, (metadata, error) -> {
                    if (error != null) {
                        failed(index, error);
                    } else {
                        delivered(index, metadata.partition(), metadata.offset());
                    }
                });
            }
        }
    }

    private static void consume(Map<String, String> options) {
        int partitions = number(options, "partitions", 1);
        int count = number(options, "count", 0);
        String topic = options.get("topic");
        boolean inGroup = options.containsKey("group");
        Properties settings = settings(options);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (inGroup) {
            settings.put("group.id", options.get("group"));
        }
        long deadline = System.nanoTime() + number(options, "timeout-ms", 60_000) * 1_000_000L;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            if (inGroup) {
                consumer.subscribe(List.of(topic));
            } else {
                List<TopicPartition> all =
                        IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
                consumer.assign(all);
                consumer.seekToBeginning(all);
            }
            while (done < count && System.nanoTime() < deadline && !toldToEnd) {
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
                records.forEach(Client::record);
                if (inGroup && !records.isEmpty()) {
                    consumer.commitSync();
                }
            }
        }
    }

    private static void admin(Map<String, String> options) throws Exception {
        int partitions = number(options, "partitions", 1);
        String topic = options.get("topic");
        String created = topic + ".new";
        String group = options.get("group");
        try (Admin admin = Admin.create(settings(options))) {
            admin.createTopics(List.of(new NewTopic(created, partitions, (short) 1))).all().get();
            answered("create-topic", "");
            // Where there are several connections, not all know it at once.
            Thread.sleep(300);
            answered("list-topics", names(admin.listTopics().names().get()));
            admin.deleteTopics(List.of(created)).all().get();
            answered("delete-topic", "");
            String first = offsets(admin, topic, partitions, OffsetSpec.earliest());
            String last = offsets(admin, topic, partitions, OffsetSpec.latest());
            answered("offsets", ",\"first\":" + first + ",\"last\":" + last);
            answered("list-groups", names(admin.listConsumerGroups().all().get().stream()
                    .map(ConsumerGroupListing::groupId).collect(Collectors.toList())));
            ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            answered("describe-group",
                    ",\"state\":" + quoted(described.state().toString()) + ",\"members\":" + described.members().size());
            admin.deleteConsumerGroups(List.of(group)).all().get();
            answered("delete-group", "");
        }
    }

    private static String offsets(Admin admin, String topic, int partitions, OffsetSpec spec) throws Exception {
        List<TopicPartition> all =
                IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).collect(Collectors.toList());
        var offsets = admin.listOffsets(all.stream().collect(Collectors.toMap(Function.identity(), p -> spec))).all().get();
        return all.stream().map(p -> Long.toString(offsets.get(p).offset())).collect(Collectors.joining(",", "[", "]"));
    }

    private static String names(Collection<String> names) {
        return ",\"names\":" + names.stream().map(Client::quoted).collect(Collectors.joining(",", "[", "]"));
    }

    private static void answered(String verb, String fields) {
        System.out.println("{\"event\":\"admin\",\"verb\":\"" + verb + "\"" + fields + "}");
    }

    private static Properties settings(Map<String, String> options) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("client.id", "peer-java");
        // The client would send them where it may, and a test wants to see what is wrong, not telemetry.
        settings.put("enable.metrics.push", "false");
        return settings;
    }

    private static int number(Map<String, String> options, String name, int otherwise) {
        return options.containsKey(name) ? Integer.parseInt(options.get(name)) : otherwise;
    }

    private static synchronized void delivered(int index, int partition, long offset) {
        done++;
        System.out.println("{\"event\":\"delivered\",\"index\":" + index + ",\"partition\":" + partition + ",\"offset\":" + offset + "}");
    }

    private static synchronized void failed(int index, Exception error) {
        failed++;
        System.out.println("{\"event\":\"failed\",\"index\":" + index + ",\"error\":" + quoted(error.toString()) + "}");
    }

    private static void record(ConsumerRecord<String, String> record) {
        done++;
        System.out.println("{\"event\":\"record\",\"partition\":" + record.partition() + ",\"offset\":" + record.offset()
                + ",\"key\":" + quoted(record.key()) + ",\"value\":" + quoted(record.value()) + "}");
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : (text == null ? "" : text).toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
