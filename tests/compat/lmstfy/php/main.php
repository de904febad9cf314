<?php
// All that lmstfy's PHP client can do, against the server of LMSTFY_HOST: php main.php PATH/Client.php
// The client makes a property that it has not declared, which PHP 8.2 notices.
error_reporting(E_ALL & ~E_DEPRECATED);
set_error_handler(function ($level, $text) {
    if (error_reporting() & $level) {
        throw new ErrorException($text);
    }
});
require $argv[1];

use Lmstfy\Client;

$address = getenv('LMSTFY_HOST') . ':' . getenv('LMSTFY_PORT');
$namespace = getenv('LMSTFY_NAMESPACE');
$client = new Client($address, $namespace, getenv('LMSTFY_TOKEN'));

function expect($found, $wanted, $what) {
    if ($found !== $wanted) {
        throw new Exception("$what: " . var_export($found, true) . ', not ' . var_export($wanted, true));
    }
}

function refused($call, $text) {
    try {
        $call();
    } catch (Exception $error) {
        expect(strpos($error->getMessage(), $text) !== false, true, "$text in \"{$error->getMessage()}\"");
        return;
    }
    throw new Exception("not refused; wanted: $text");
}

// A job that is taken once and not acknowledged: dead after a second.
function dead($client, $queue) {
    $id = $client->Publish($queue, 'dead', 0, 1, 0);
    expect($client->Consume($queue, 1, 5)['job_id'], $id, 'consumed');
    $until = microtime(true) + 20;
    while (true) {
        try {
            $letter = $client->PeekDeadLetter($queue);
        } catch (ErrorException $error) {
            // The client looks for "data", which no lmstfy sends: this call fails whatever the server is.
            expect(strpos($error->getMessage(), 'data') !== false, true, $error->getMessage());
        }
        if ($client->RespawnDeadLetter($queue, 10, 60) > 0) {
            return $id;
        }
        expect(microtime(true) < $until, true, 'dead in time');
        usleep(100000);
    }
}

$tests = [
    'publish, consume, acknowledge' => function ($queue) use ($client, $namespace) {
        $body = "gr\u{fc}n \x00\xff <&>";
        $id = $client->Publish($queue, $body, 100, 3, 0);
        expect(strlen($id), 26, 'length of the id');
        $job = $client->Consume($queue, 10, 3);
        expect($job['job_id'], $id, 'id');
        expect($job['data'], $body, 'body');
        expect([$job['namespace'], $job['queue']], [$namespace, $queue], 'where');
        expect($job['ttl'] > 90 && $job['ttl'] <= 100, true, "ttl {$job['ttl']}");
        expect($client->Ack($queue, $id), true, 'acknowledged');
        expect($client->Consume($queue, 10, 1), null, 'no more');
    },
    'a delay' => function ($queue) use ($client) {
        $begun = microtime(true);
        $id = $client->Publish($queue, 'later', 0, 1, 2);
        expect($client->Consume($queue, 10, 0), null, 'not yet');
        expect($client->Consume($queue, 10, 10)['job_id'], $id, 'id');
        // lmstfy counts whole seconds: there, it may come in the second before.
        expect(microtime(true) - $begun > 0.9, true, 'later');
    },
    'again after its time to run' => function ($queue) use ($client) {
        $id = $client->Publish($queue, 'twice', 0, 2, 0);
        expect($client->Consume($queue, 1, 5)['job_id'], $id, 'first');
        expect($client->Consume($queue, 10, 10)['job_id'], $id, 'second');
        $client->Ack($queue, $id);
    },
    'size, peek, look up' => function ($queue) use ($client) {
        $first = $client->Publish($queue, 'one', 0, 1, 0);
        $client->Publish($queue, 'two', 0, 1, 0);
        expect($client->QueueSize($queue), 2, 'size');
        expect($client->PeekQueue($queue)['data'], 'one', 'peeked');
        expect($client->GetJob($queue, $first)['data'], 'one', 'looked up');
    },
    'delete before it is due' => function ($queue) use ($client) {
        $id = $client->Publish($queue, 'never', 0, 1, 3600);
        expect($client->GetJob($queue, $id)['job_id'], $id, 'looked up');
        expect($client->Ack($queue, $id), true, 'deleted');
        refused(fn () => $client->GetJob($queue, $id), '404');
    },
    'dead letter and respawn' => function ($queue) use ($client) {
        $id = dead($client, $queue);
        $job = $client->Consume($queue, 10, 5);
        expect([$job['job_id'], $job['data']], [$id, 'dead'], 'respawned');
        $client->Ack($queue, $id);
    },
    'several queues' => function ($queue) use ($client) {
        // The client writes its query as "Array" here, so that time to run and time-out are lmstfy's own.
        error_reporting(E_ALL & ~E_DEPRECATED & ~E_WARNING);
        $client->Publish("$queue-low", 'low', 0, 1, 0);
        $client->Publish("$queue-high", 'high', 0, 1, 0);
        $found = [];
        foreach ([1, 2] as $_) {
            $job = $client->ConsumeMultiQueues(10, 3, "$queue-high", "$queue-low");
            $found[] = [$job['queue'], $job['data']];
        }
        error_reporting(E_ALL & ~E_DEPRECATED);
        expect($found, [["$queue-high", 'high'], ["$queue-low", 'low']], 'by their order');
    },
    'a form as the body' => function ($queue) use ($client) {
        $client->Publish($queue, ['a' => '1', 'b' => 'x y'], 0, 1, 0);
        expect($client->Consume($queue, 10, 3)['data'], 'a=1&b=x+y', 'body');
    },
    'a large body, and one that is too large' => function ($queue) use ($client) {
        $body = random_bytes(1 << 20);
        $client->Publish($queue, $body, 0, 1, 0);
        expect($client->Consume($queue, 10, 3)['data'] === $body, true, 'the body');
        refused(fn () => $client->Publish($queue, "$body.", 0, 1, 0), '413');
    },
    'refusals' => function ($queue) use ($client, $address, $namespace) {
        refused(fn () => (new Client($address, $namespace, 'wrong'))->Publish($queue, 'x'), '401');
        refused(fn () => $client->Publish('a.b', 'x'), '400');
        refused(fn () => $client->Publish($queue, 'x', 1, 1, 5), '400');
    },
];

$failed = 0;
foreach ($tests as $name => $test) {
    try {
        $test('php-' . preg_replace('/[^a-z]+/', '-', $name));
        echo "ok $name\n";
    } catch (Throwable $error) {
        $failed++;
        echo "FAILED $name: {$error->getMessage()} (line {$error->getLine()})\n";
    }
}
echo count($tests) - $failed, " passed, $failed failed\n";
exit($failed ? 1 : 0);
