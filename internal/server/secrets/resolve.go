package secrets

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// Job says for whom secrets are resolved, for the audit log.
type Job struct {
	RunID string
	JobID string
}

// Resolve gives the values that a job may use: those of the scopes, by key. On equal keys the scope with more segments
// wins, then the one named first. Scopes that do not exist give nothing. A reserved organisation or scope is refused with
// ErrReserved and the refusal is audited; a value that cannot be decrypted is an error, never left out.
func (s *Store) Resolve(ctx context.Context, org string, scopes []string) (map[string]string, error) {
	return s.ResolveFor(ctx, Job{}, org, scopes)
}

// ResolveFor is Resolve for a known job: of allowed resolutions one run in a hundred is audited.
func (s *Store) ResolveFor(ctx context.Context, job Job, org string, scopes []string) (map[string]string, error) {
	if org == SystemOrg || slices.ContainsFunc(scopes, reservedScope) {
		return nil, s.refuse(ctx, job, org)
	}
	if s.keys == nil {
		return nil, ErrNotConfigured
	}
	ordered := slices.Clone(scopes)
	slices.SortStableFunc(ordered, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	values, err := s.collect(ctx, org, ordered)
	if err != nil {
		return nil, fmt.Errorf("resolve secrets: %w", err)
	}
	if len(values) == 0 || !sampled(job) {
		return values, nil
	}
	err = s.audit(ctx, AuditEntry{
		Action: "resolve", Context: strings.Join(scopes, ","), Keys: slices.Sorted(maps.Keys(values)),
		Outcome: outcomeAllowed, RunID: job.RunID, JobID: job.JobID,
	})
	if err != nil {
		return nil, fmt.Errorf("resolve secrets: %w", err)
	}
	return values, nil
}

func reservedScope(scope string) bool { return internal(strings.TrimPrefix(scope, backendHead)) }

// collect opens the secrets of scopes. Of a key in several of them the first counts.
func (s *Store) collect(ctx context.Context, org string, scopes []string) (map[string]string, error) {
	found := make([][]row, len(scopes))
	asks := make([]store.Ask, 0, len(scopes))
	for i, scope := range scopes {
		asks = append(asks, askScope(org, strings.TrimPrefix(scope, backendHead), "", &found[i]))
	}
	if err := s.db.Read().All(ctx, asks...); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for i, scope := range scopes {
		for _, r := range found[i] {
			if _, there := values[r.key]; there || r.key == sentinel {
				continue
			}
			value, err := s.keys.Open(r.envelope, place(org, strings.TrimPrefix(scope, backendHead), r.key))
			if err != nil {
				return nil, err
			}
			values[r.key] = string(value)
		}
	}
	return values, nil
}

// refuse names the namespace only: whoever probes learns nothing about what is in it.
func (s *Store) refuse(ctx context.Context, job Job, org string) error {
	err := s.audit(ctx, AuditEntry{
		Action: "resolve", Context: ci.CutName(org), Outcome: outcomeDenied, RunID: job.RunID, JobID: job.JobID,
	})
	return errors.Join(fmt.Errorf("resolve secrets: %w", ErrReserved), err)
}

// Named gives one value of the server's own scopes or of the organisation's, for the server's use; ok is false when
// there is none.
func (s *Store) Named(ctx context.Context, org, scope, key string) (value string, ok bool, err error) {
	if s.keys == nil {
		return "", false, ErrNotConfigured
	}
	rows, err := readScope(ctx, s.db.Read(), org, scope, "")
	if err != nil {
		return "", false, fmt.Errorf("look up secret: %w", err)
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.key == key })
	if i < 0 || key == sentinel {
		return "", false, nil
	}
	plain, err := s.keys.Open(rows[i].envelope, place(org, scope, key))
	if err != nil {
		return "", false, fmt.Errorf("look up secret: %w", err)
	}
	return string(plain), true, nil
}

// sampleShare of the runs have their resolutions audited: each is one write, and every job resolves.
const sampleShare = 0.01

// sampled decides by the run, so that one run is audited as a whole. A resolution for nobody known always is.
func sampled(job Job) bool {
	trace := job.RunID
	if trace == "" {
		trace = job.JobID
	}
	if trace == "" {
		trace = "unknown"
	}
	return traceHash(trace) < sampleShare
}

// traceHash is FNV-1a over the low byte of each UTF-16 unit, as a share of its range.
func traceHash(trace string) float64 {
	h := fnv.New32a()
	for _, unit := range utf16.Encode([]rune("system:" + trace)) {
		h.Write([]byte{byte(unit)})
	}
	return float64(h.Sum32()) / (1 << 32)
}

func (s *Store) audit(ctx context.Context, e AuditEntry) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return s.auditTx(ctx, tx, e) })
}
