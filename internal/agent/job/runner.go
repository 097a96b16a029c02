package job

import (
	"strings"

	"kici/internal/agent/runner"
)

// startRunner gives the job a runner: the spare one, else a new one, which gets ready while the source is fetched.
func (j *Job) startRunner(o runner.Options) (*runner.Process, error) {
	if zone(o.Env) == zone(runner.Inherited(j.shop.Environ)) {
		if proc, ready := j.shop.SpareRunner(); proc != nil {
			proc.Bind(j.ctx)
			j.setRunner(proc, ready)
			j.env = o.Env
			return proc, nil
		}
	}
	proc, err := runner.Start(j.ctx, o)
	if err == nil {
		j.setRunner(proc, false)
	}
	return proc, err
}

func (j *Job) setRunner(proc *runner.Process, ready bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.proc, j.ready = proc, ready
}

// clear ends what the job has left running, so that nothing of it runs when its end is reported. A runner that has given
// its result has no more to say, and its end need not hold up the report.
func (j *Job) clear(res outcome) {
	j.mu.Lock()
	proc, polite := j.proc, !j.cancelling && j.ctx.Err() == nil
	j.mu.Unlock()
	if proc == nil || !polite || res.result == nil || proc.Clear() != nil {
		j.tearDown()
	}
}

// zone is the time zone of an environment. The embedded engine reads it when its process starts.
func zone(env []string) string {
	for _, pair := range env {
		if zone, ok := strings.CutPrefix(pair, "TZ="); ok {
			return zone
		}
	}
	return ""
}
