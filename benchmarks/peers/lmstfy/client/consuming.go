package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bitleak/lmstfy/client"
)

const pollSeconds = 3

// consume hands out and acknowledges what it has published before; one span is of both requests.
func consume(b *bench) (report, error) {
	count := b.int("count")
	if _, err := b.fill(2*count, time.Now()); err != nil { // half of them are for the warm-up
		return nil, err
	}
	return b.measured(count, func(int) error {
		job, err := b.cli.Consume(b.queue, uint32(b.int("ttr_s")), pollSeconds)
		if err != nil {
			return err
		}
		if job == nil {
			return fmt.Errorf("the queue is empty before the end")
		}
		return ack(b, job)
	})
}

func ack(b *bench, job *client.Job) error {
	if err := b.cli.Ack(b.queue, job.ID); err != nil {
		return err
	}
	return nil
}

// seen is what has come of so many jobs, by number.
type seen struct {
	mutex    sync.Mutex
	times    []int32
	distinct int
	late     []float64 // milliseconds after they were due
	first    time.Time
	last     time.Time
}

func newSeen(count int) *seen { return &seen{times: make([]int32, count), last: time.Now()} }

func (s *seen) note(jobs []*client.Job) {
	now := time.Now()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.distinct == 0 {
		s.first = now
	}
	for _, job := range jobs {
		number := numberOf(job)
		if s.times[number]++; s.times[number] == 1 {
			s.distinct++
			s.late = append(s.late, milliseconds(now.Sub(dueOf(job))))
		}
		s.last = now
	}
}

func (s *seen) over(count int, patience time.Duration) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.distinct >= count || time.Since(s.last) > patience
}

func (s *seen) report(found report, count int) report {
	early, duplicates := 0, 0
	for _, late := range s.late {
		if late < 0 {
			early++
		}
	}
	for _, times := range s.times {
		if times > 1 {
			duplicates++
		}
	}
	found["early"], found["lost"], found["duplicates"] = early, count-s.distinct, duplicates
	return withPercentiles(found, "late_ms", s.late)
}

// take consumes until all have come, or none for as long as patience.
func (b *bench) take(s *seen, count, batch int, acks bool, patience time.Duration) {
	b.together(func() {
		for !s.over(count, patience) {
			jobs, err := b.next(batch)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // the server may be away
				continue
			}
			s.note(jobs)
			for _, job := range jobs {
				for acks && ack(b, job) != nil && !s.over(count, patience) {
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
	})
}

func (b *bench) next(batch int) ([]*client.Job, error) {
	ttr := uint32(b.int("ttr_s"))
	if batch > 1 {
		return b.cli.BatchConsume([]string{b.queue}, uint32(batch), ttr, pollSeconds)
	}
	job, err := b.cli.Consume(b.queue, ttr, pollSeconds)
	if job == nil || err != nil {
		return nil, err
	}
	return []*client.Job{job}, nil
}

// herd has consumers wait for jobs that are all due in the same second; last_s is when the last came after its end, and
// span_s after the first.
func herd(b *bench) (report, error) {
	count, lead := b.int("count"), b.options["lead_s"]
	if lead == 0 {
		lead = 10 + float64(count)/10000
	}
	due := time.Now().Add(time.Duration(lead * float64(time.Second))).Truncate(time.Second)
	mark("begin")
	late, err := b.fill(count, due)
	if err != nil {
		return nil, err
	}
	s := newSeen(count)
	s.last = due
	b.take(s, count, b.int("batch"), b.options["ack"] > 0, time.Duration(b.options["patience_s"]*float64(time.Second)))
	mark("end")
	found := report{
		"last_s": s.last.Sub(due).Seconds(), "span_s": s.last.Sub(s.first).Seconds(),
		"acknowledged_s": time.Since(due).Seconds(), "published_late": late,
	}
	return s.report(found, count), nil
}

// paced counts a job as early where it comes before the moment before its publishing, plus its delay.
func paced(b *bench) (report, error) {
	rate, seconds := b.options["rate"], b.options["seconds"]
	count := int(rate * seconds)
	s := newSeen(count)
	s.last = time.Now().Add(10 * time.Second)
	var consumers sync.WaitGroup
	consumers.Add(1)
	go func() {
		defer consumers.Done()
		b.take(s, count, 1, true, time.Duration(b.options["patience_s"]*float64(time.Second)))
	}()
	begun := time.Now()
	var behind int64
	err := b.each(count, func(number int) error {
		at := begun.Add(time.Duration(float64(number) / rate * float64(time.Second)))
		time.Sleep(time.Until(at))
		if time.Since(at) > time.Second {
			atomic.AddInt64(&behind, 1)
		}
		delay := 1 + number%10
		due := time.Now().Add(time.Duration(delay) * time.Second)
		_, err := b.cli.Publish(b.queue, b.numbered(number, due), ttlSeconds, uint16(b.int("tries")), uint32(delay))
		return err
	})
	taken := float64(count) / time.Since(begun).Seconds()
	if err != nil {
		return nil, err
	}
	consumers.Wait()
	return s.report(report{"taken_per_s": taken, "behind": behind}, count), nil
}

// drain tells when it begins, since somebody is to kill the server from then on.
func drain(b *bench) (report, error) {
	count := b.int("count")
	if _, err := b.fill(count, time.Now()); err != nil {
		return nil, err
	}
	s := newSeen(count)
	s.last = time.Now()
	fmt.Println("draining")
	// What a consumer got and could not acknowledge comes again after its ttr.
	patience := time.Duration((b.options["ttr_s"] + b.options["patience_s"]) * float64(time.Second))
	begun := time.Now()
	b.take(s, count, 1, true, patience)
	return s.report(report{"seconds": time.Since(begun).Seconds()}, count), nil
}
