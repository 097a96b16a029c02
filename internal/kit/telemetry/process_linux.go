package telemetry

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// clockTicks is the unit of times in /proc, fixed on Linux for user space: parts of a second.
const clockTicks = 100

// processFamilies are the numbers of this process, under the names that other programs have for them. What the system
// does not tell is left out.
func processFamilies() []Family {
	var list []Family
	if stat := processStat(); stat != nil {
		list = append(list,
			one(KindCounter, "process_cpu_seconds_total", "Processor time used, in seconds.", (stat[statUser]+stat[statSystem])/clockTicks),
			one(KindGauge, "process_virtual_memory_bytes", "Bytes of address space.", stat[statVirtual]),
			one(KindGauge, "process_resident_memory_bytes", "Bytes of memory that are in use now.", stat[statResident]*float64(os.Getpagesize())))
		if boot := bootTime(); boot > 0 {
			list = append(list, one(KindGauge, "process_start_time_seconds", "When the process was started, in seconds since 1970.",
				boot+stat[statStart]/clockTicks))
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		list = append(list, one(KindGauge, "process_open_fds", "Files that are open.", float64(len(open))))
	}
	for _, limit := range []struct {
		resource   int
		name, help string
	}{
		{syscall.RLIMIT_NOFILE, "process_max_fds", "Files that may be open at a time."},
		{syscall.RLIMIT_AS, "process_virtual_memory_max_bytes", "Bytes of address space that are allowed."},
	} {
		var l syscall.Rlimit
		if syscall.Getrlimit(limit.resource, &l) == nil {
			list = append(list, one(KindGauge, limit.name, limit.help, float64(l.Cur)))
		}
	}
	return list
}

// Places of numbers in /proc/self/stat, counted from the one behind the state, which is the third there.
const (
	statUser     = 14 - 4
	statSystem   = 15 - 4
	statStart    = 22 - 4 // in ticks since the system was started
	statVirtual  = 23 - 4
	statResident = 24 - 4 // in pages
)

// processStat gives the numbers of /proc/self/stat behind the state; nil when it cannot be read.
func processStat() []float64 {
	raw, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:])) // the name in parentheses may hold anything
	if len(fields) <= statResident+1 {
		return nil
	}
	numbers := make([]float64, len(fields)-1)
	for i, f := range fields[1:] {
		if numbers[i], err = strconv.ParseFloat(f, 64); err != nil {
			return nil
		}
	}
	return numbers
}

// bootTime is when the system was started, in seconds since 1970; 0 when it does not tell.
var bootTime = sync.OnceValue(func() float64 {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if since, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, _ := strconv.ParseFloat(strings.TrimSpace(since), 64) // 0 for what is no number
			return seconds
		}
	}
	return 0
})
