package main

import (
	"sync/atomic"
	"time"
)

func publish(b *bench) (report, error) {
	return b.measured(b.int("count"), func(number int) error {
		_, err := b.cli.Publish(b.queue, b.numbered(number, time.Now()), ttlSeconds, 1, uint32(b.int("delay_s")))
		return err
	})
}

// bulk counts jobs, not requests.
func bulk(b *bench) (report, error) {
	size := b.int("bulk")
	found, err := b.measured((b.int("count")+size-1)/size, func(number int) error {
		return b.publishMany(number*size, size, time.Now(), 1, uint32(b.int("delay_s")))
	})
	if err == nil {
		found["per_s"] = found["per_s"].(float64) * float64(size)
	}
	return found, err
}

func (b *bench) publishMany(first, count int, due time.Time, tries uint16, delay uint32) error {
	jobs := make([]interface{}, count)
	for i := range jobs {
		jobs[i] = b.numbered(first+i, due)
	}
	_, err := b.cli.BatchPublish(b.queue, jobs, ttlSeconds, tries, delay)
	return err
}

// fill publishes jobs that are all due at the end of a second, as quickly as it can; a time that has passed: at once.
// It returns how many were published too late.
func (b *bench) fill(count int, due time.Time) (int, error) {
	var late int64
	size := b.int("bulk")
	err := b.each((count+size-1)/size, func(number int) error {
		first := number * size
		many := size
		if count-first < many {
			many = count - first
		}
		// Rounded down to whole seconds, which is all that lmstfy knows: due up to a second before.
		delay := time.Until(due) / time.Second
		if delay < 0 {
			delay = 0
		}
		err := b.publishMany(first, many, due, uint16(b.int("tries")), uint32(delay))
		if time.Now().After(due) {
			atomic.AddInt64(&late, int64(many))
		}
		return err
	})
	return int(late), err
}
