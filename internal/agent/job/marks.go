package job

import (
	"log/slog"
	"time"
)

// mark notes that a part of the job is done; each part counts once. The marks stand at the job's end in the debug log
// and say where the time of a slow job went.
func (j *Job) mark(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.marks {
		if m.Key == name {
			return
		}
	}
	j.marks = append(j.marks, slog.Duration(name, time.Since(j.started)))
}

// logMarks writes them, in the order in which they came.
func (j *Job) logMarks() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log.LogAttrs(j.ctx, slog.LevelDebug, "job timeline", j.marks...)
}
