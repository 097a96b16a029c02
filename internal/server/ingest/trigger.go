package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"kici/internal/server/forge"
	"kici/internal/server/inbox"
)

// ErrCannotTrigger says that runs cannot be started from here for this source: it is off, or has no repositories.
var ErrCannotTrigger = errors.New("no run can be started for this source")

// pushed is a push as a forge would tell it.
type pushed struct {
	Ref        string     `json:"ref"`
	After      string     `json:"after"`
	Repository repository `json:"repository"`
	HeadCommit commit     `json:"head_commit"`
	Sender     sender     `json:"sender"`
}

type repository struct {
	FullName      string `json:"full_name"`
	DefaultBranch string `json:"default_branch"`
}

type commit struct {
	ID      string `json:"id"`
	Message string `json:"message"`
}

type sender struct {
	Login string `json:"login"`
}

// Trigger starts what a push of the ref would start, without a push: ref is a branch or tag, "" for the default branch,
// or a commit id, which counts as pushed to the default branch. It returns once the delivery is accepted. Errors:
// forge.ErrUnknownSource, ErrCannotTrigger, inbox.ErrBacklog, and those of forge.Refs.
func (in *Ingest) Trigger(ctx context.Context, sourceID, repo, ref, actor string) (deliveryID, sha string, err error) {
	src, err := in.deps.Sources.Get(ctx, sourceID)
	if err == nil && src.DeletedAt != 0 {
		err = forge.ErrUnknownSource
	}
	if err != nil {
		return "", "", fmt.Errorf("trigger: %w", err)
	}
	refs := in.deps.Refs[src.Provider]
	if !src.Enabled || refs == nil {
		return "", "", fmt.Errorf("trigger source %s: %w", src.Name, ErrCannotTrigger)
	}
	c, err := refs.Commit(ctx, src, repo, ref)
	if err != nil {
		return "", "", fmt.Errorf("trigger: %w", err)
	}
	payload, err := json.Marshal(pushed{Ref: c.Ref, After: c.SHA, Repository: repository{repo, c.Default},
		HeadCommit: commit{c.SHA, c.Message}, Sender: sender{actor}})
	if err != nil {
		return "", "", fmt.Errorf("trigger: %w", err)
	}
	d := inbox.Delivery{
		ID: inbox.TriggerPrefix + uuid.NewString(), OrgID: src.OrgID, RoutingKey: src.RoutingKey, SourceID: src.ID, Provider: src.Provider,
		Event: "push", Headers: map[string]string{"content-type": "application/json"}, Payload: payload, RequestID: uuid.NewString(),
		Source: &src,
	}
	if _, err := in.deps.Inbox.Accept(ctx, d); err != nil {
		return "", "", fmt.Errorf("trigger: %w", err)
	}
	in.deps.Received.Inc("trigger", "push")
	return d.ID, c.SHA, nil
}
