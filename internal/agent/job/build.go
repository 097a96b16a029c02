package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"kici/internal/agent/host"
	"kici/internal/agent/ledger"
	"kici/internal/agent/workspace"
	"kici/internal/core/ci"
	"kici/internal/core/wire"
)

// The build caches that a server keeps.
const (
	sourceCache = "source"
	depsCache   = "deps"
)

// build packs source and dependencies for the jobs of a run, and for later runs of the same.
func (j *Job) build(ws *workspace.Workspace, box host.Box) outcome {
	j.sendContext(j.runnerEnvironment(box), ws.Dir(), string(build))
	j.event("agent.execution.start", 0, nil)
	if err := j.prepare(ws); err != nil {
		return j.failure(err)
	}
	if err := j.awaitFence(); err != nil {
		return j.failure(err)
	}
	if err := j.packAll(ws); err != nil {
		j.say("%v", err)
		return j.failure(err)
	}
	return outcome{state: ci.JobSuccess}
}

func (j *Job) packAll(ws *workspace.Workspace) error {
	if j.conf.BuildDepsNeeded {
		f, packed, err := ws.PackDependencies(j.ctx, j.root())
		if err != nil {
			return err
		}
		defer f.Close()
		err = j.store(f, packed, wire.CacheUploadRequest{CacheType: depsCache, LockfileHash: j.conf.LockfileHash})
		if err != nil {
			return fmt.Errorf("store the dependencies: %w", err)
		}
		j.buildEvent(map[string]any{"buildEvent": "deps_packed", "depsHash": packed.Hash, "depsTarballSize": packed.Size})
	}
	if j.conf.BuildSourceNeeded && j.conf.ContentHash != "" {
		f, packed, err := ws.PackSource(j.ctx, j.root())
		if err != nil {
			return err
		}
		defer f.Close()
		err = j.store(f, packed, wire.CacheUploadRequest{CacheType: sourceCache, ContentHash: j.conf.ContentHash})
		if err != nil {
			return fmt.Errorf("store the source: %w", err)
		}
		j.buildEvent(map[string]any{"buildEvent": "source_packed", "contentHash": j.conf.ContentHash, "sourceTarHash": packed.Hash})
	}
	return nil
}

// store uploads an archive. about says what it is, but for whom.
func (j *Job) store(f *os.File, packed workspace.Packed, about wire.CacheUploadRequest) error {
	started := time.Now()
	about.JobID, about.Platform, about.Arch = j.Ref.ID, j.conf.TargetPlatform, j.conf.TargetArch
	if about.Platform == "" || about.Arch == "" { // the server knows of no other platform than this
		about.Platform, about.Arch = j.shop.Facts.Platform, j.shop.Facts.Arch
	}
	about.MessageID = uuid.NewString()
	m, err := j.ask(about.MessageID, about)
	if err != nil {
		return err
	}
	answer, ok := m.(wire.CacheUploadResponse)
	if !ok || answer.UploadURL == "" {
		return errors.New("the server has no place for it")
	}
	if err := workspace.Upload(j.ctx, j.shop.Client, j.shop.reach(answer.UploadURL), f); err != nil {
		return err
	}
	done := wire.CacheUploadComplete{MessageID: uuid.NewString(), JobID: about.JobID, CacheType: about.CacheType, ContentHash: about.ContentHash,
		LockfileHash: about.LockfileHash, Platform: about.Platform, Arch: about.Arch}
	if about.CacheType == depsCache {
		done.DepsHash = packed.Hash
	}
	j.shop.Ledger.Post(done, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref})
	j.say("Stored %s (%d bytes) in %d ms", about.CacheType, packed.Size, time.Since(started).Milliseconds())
	return nil
}

// buildEvent tells the server what it can use already.
func (j *Job) buildEvent(data map[string]any) {
	m := wire.JobStatus{MessageID: uuid.NewString(), RunID: j.Ref.Run, JobID: j.Ref.ID, State: ci.JobRunning, Timestamp: time.Now().UnixMilli(), Data: object(data)}
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAcked, Job: j.Ref})
}

// ask puts a question of the agent's own to the server and waits for the answer. It is put again on the next connection
// where the server has forgotten it.
func (j *Job) ask(id string, m wire.Message) (wire.Message, error) {
	ctx, cancel := context.WithTimeoutCause(j.ctx, storeLimit, ledger.ErrNoAnswer)
	defer cancel()
	type reply struct {
		m   wire.Message
		err error
	}
	replies := make(chan reply, 1)
	j.shop.Questions.Add(id, &ledger.Question{Lasting: true, Answer: func(m wire.Message, err error) { replies <- reply{m, err} }})
	j.shop.Ledger.Post(m, ledger.Entry{Keep: ledger.KeepAnswered, Job: j.Ref})
	defer j.shop.Ledger.Answered(id)
	select {
	case r := <-replies:
		return r.m, r.err
	case <-ctx.Done():
		j.shop.Questions.Take(id)
		return nil, context.Cause(ctx)
	}
}
