package telemetry

import (
	"runtime"
	"runtime/debug"
	"time"
)

// one is a family of a single number without labels.
func one(kind, name, help string, value float64) Family {
	return Family{Kind: kind, Name: name, Help: help, Samples: []Sample{{Value: value}}}
}

// runtimeFamilies are the numbers of the Go runtime, under the names that every Go program has for them, so that
// dashboards for Go programs show this one, too.
func runtimeFamilies() []Family {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	threads, _ := runtime.ThreadCreateProfile(nil)
	gauge := func(name, help string, v uint64) Family { return one(KindGauge, name, help, float64(v)) }
	counter := func(name, help string, v uint64) Family { return one(KindCounter, name, help, float64(v)) }
	return []Family{
		{Kind: KindGauge, Name: "go_info", Help: "The version of Go that the program was built with.",
			Samples: []Sample{{Labels: []Pair{{"version", runtime.Version()}}, Value: 1}}},
		gauge("go_goroutines", "Goroutines that exist now.", uint64(runtime.NumGoroutine())),
		gauge("go_threads", "Threads of the system that were made.", uint64(threads)),
		gauge("go_sched_gomaxprocs_threads", "Threads that may run Go code at a time.", uint64(runtime.GOMAXPROCS(0))),
		gauge("go_gc_gomemlimit_bytes", "Bytes of memory that the runtime tries to stay below.", uint64(debug.SetMemoryLimit(-1))),
		pauses(),
		gauge("go_memstats_alloc_bytes", "Bytes of the heap in use by objects.", m.Alloc),
		counter("go_memstats_alloc_bytes_total", "Bytes of all objects ever made.", m.TotalAlloc),
		gauge("go_memstats_sys_bytes", "Bytes taken from the system.", m.Sys),
		counter("go_memstats_mallocs_total", "Objects ever made.", m.Mallocs),
		counter("go_memstats_frees_total", "Objects ever freed.", m.Frees),
		gauge("go_memstats_heap_alloc_bytes", "Bytes of the heap in use by objects.", m.HeapAlloc),
		gauge("go_memstats_heap_sys_bytes", "Bytes taken from the system for the heap.", m.HeapSys),
		gauge("go_memstats_heap_idle_bytes", "Bytes of the heap that wait to be used.", m.HeapIdle),
		gauge("go_memstats_heap_inuse_bytes", "Bytes of the heap in spans that are in use.", m.HeapInuse),
		gauge("go_memstats_heap_released_bytes", "Bytes of the heap given back to the system.", m.HeapReleased),
		gauge("go_memstats_heap_objects", "Objects that exist now.", m.HeapObjects),
		gauge("go_memstats_stack_inuse_bytes", "Bytes of stacks in use.", m.StackInuse),
		gauge("go_memstats_stack_sys_bytes", "Bytes taken from the system for stacks.", m.StackSys),
		gauge("go_memstats_mspan_inuse_bytes", "Bytes of span structures in use.", m.MSpanInuse),
		gauge("go_memstats_mspan_sys_bytes", "Bytes taken from the system for span structures.", m.MSpanSys),
		gauge("go_memstats_mcache_inuse_bytes", "Bytes of cache structures in use.", m.MCacheInuse),
		gauge("go_memstats_mcache_sys_bytes", "Bytes taken from the system for cache structures.", m.MCacheSys),
		gauge("go_memstats_buck_hash_sys_bytes", "Bytes of the tables of profiles.", m.BuckHashSys),
		gauge("go_memstats_gc_sys_bytes", "Bytes of what garbage collection keeps for itself.", m.GCSys),
		gauge("go_memstats_other_sys_bytes", "Bytes taken from the system for anything else.", m.OtherSys),
		gauge("go_memstats_next_gc_bytes", "Bytes of the heap at which garbage is collected next.", m.NextGC),
		one(KindGauge, "go_memstats_last_gc_time_seconds", "Time of the last garbage collection, in seconds since 1970.", float64(m.LastGC)/1e9),
	}
}

// pauses tells how long garbage collection has stopped the program.
func pauses() Family {
	stats := debug.GCStats{PauseQuantiles: make([]time.Duration, 5)}
	debug.ReadGCStats(&stats)
	f := Family{Kind: kindSummary, Name: "go_gc_duration_seconds", Help: "Pauses of the program for garbage collection."}
	for i, q := range stats.PauseQuantiles {
		part := float64(i) / float64(len(stats.PauseQuantiles)-1)
		f.Samples = append(f.Samples, Sample{Labels: []Pair{{"quantile", number(part)}}, Value: q.Seconds()})
	}
	f.Samples = append(f.Samples, Sample{Suffix: "_sum", Value: stats.PauseTotal.Seconds()}, Sample{Suffix: "_count", Value: float64(stats.NumGC)})
	return f
}
