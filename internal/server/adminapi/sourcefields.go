package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"kici/internal/core/adminwire"
	"kici/internal/server/forge"
)

// change puts the members of a body into the settings of a source. A member that is absent changes nothing; null clears
// what can be absent, and otherwise brings back the default.
func change(s *forge.Settings, members map[string]json.RawMessage) error {
	f := fields{members: members}
	normal := forge.DefaultOptions()
	set(&f, "name", &s.Name, "")
	set(&f, "eventTypeHeader", &s.EventTypeHeader, "")
	set(&f, "eventTypePath", &s.EventTypePath, "")
	set(&f, "idempotencyKeyHeader", &s.IdempotencyKeyHeader, "")
	set(&f, "idempotencyKeyPath", &s.IdempotencyKeyPath, "")
	set(&f, "maxPayloadBytes", &s.MaxPayloadBytes, normal.MaxPayloadBytes)
	set(&f, "allowedEvents", &s.AllowedEvents, nil)
	set(&f, "stripHeaders", &s.StripHeaders, normal.StripHeaders)
	set(&f, "rateLimitRpm", &s.RateLimitRPM, normal.RateLimitRPM)
	set(&f, "localConfig", &s.Local, nil)
	seconds := int64(s.DedupWindow / time.Second)
	set(&f, "dedupWindowSeconds", &seconds, int64(normal.DedupWindow/time.Second))
	s.DedupWindow = time.Duration(min(max(seconds, -1), 1<<32)) * time.Second // out of bounds stays so, and does not overflow
	f.verification(&s.Verification)
	if len(f.problems) > 0 {
		return invalid(f.problems...)
	}
	return nil
}

// fields reads members of a body and collects what is wrong with them.
type fields struct {
	members  map[string]json.RawMessage
	problems []adminwire.Problem
}

// set reads a member into v; null stands for the given value.
func set[T any](f *fields, name string, v *T, null T) {
	raw, given := f.members[name]
	if !given {
		return
	}
	if isNull(raw) {
		*v = null
		return
	}
	var value T // a fresh one, so that a list replaces the present list
	if err := json.Unmarshal(raw, &value); err != nil {
		f.problems = append(f.problems, problem(name, "invalid_type", "has the wrong type"))
		return
	}
	*v = value
}

// verification reads how deliveries are proven. A configuration replaces the present one as a whole; a secret in it that
// is *** keeps the stored one.
func (f *fields) verification(v *forge.Verification) {
	method := v.Method
	set(f, "verificationMethod", &method, forge.MethodHMAC)
	config, given := f.members["verificationConfig"]
	if !given && method == v.Method {
		return
	}
	parsed, err := forge.ParseVerification(method, config)
	if problems, ok := errors.AsType[forge.InvalidError](err); ok {
		f.problems = append(f.problems, problemsOf(problems)...)
		return
	}
	*v = parsed
}

// checkProvider refuses a source that says it is local without saying where, or the reverse.
func checkProvider(members map[string]json.RawMessage, s forge.Settings) error {
	kind := forge.Generic
	if s.Local != nil {
		kind = forge.Local
	}
	f := fields{members: members}
	set(&f, "providerType", &kind, kind)
	switch {
	case len(f.problems) > 0:
		return invalid(f.problems...)
	case kind == forge.Local && s.Local == nil:
		return invalid(problem("localConfig", "required", "a local source needs localConfig.repoBasePath"))
	case kind != forge.Local && kind != forge.Generic || kind == forge.Generic && s.Local != nil:
		return invalid(problem("providerType", "invalid", "must be generic or local, and local with localConfig only"))
	}
	return nil
}

// isNull tells an explicit null from a value.
func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }
