package server

import (
	"context"
	"errors"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/server/hub"
	"kici/internal/server/secrets"
	"kici/internal/server/store"
)

// PreBoot gives an agent the way to a host that has not booted yet, the key, and the secret that the host waits for, and notes
// that it did, or why not. Nobody gets a secret without a trace: it is noted before it is given.
func (b bringUps) PreBoot(ctx context.Context, caller hub.Caller, target, inputSecret string) (hub.PreBoot, error) {
	answer, err := b.preparePreBoot(ctx, caller, target, inputSecret)
	entry := entryOf(caller, actionPreBoot, target, err)
	entry.Meta = map[string]any{"inputSecret": ci.CutText(inputSecret)}
	if err != nil {
		b.tokens.Note(ctx, entry)
		return hub.PreBoot{}, err
	}
	err = b.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return b.tokens.Record(ctx, tx, entry) })
	if err != nil {
		return hub.PreBoot{}, err
	}
	return answer, nil
}

func (b bringUps) preparePreBoot(ctx context.Context, caller hub.Caller, target, inputSecret string) (answer hub.PreBoot, err error) {
	if err := mayReach(caller); err != nil {
		return answer, err
	}
	if answer.Reach, answer.PrivateKey, err = b.way(ctx, target); err != nil {
		return answer, err
	}
	answer.Input, err = b.input(ctx, inputSecret)
	return answer, err
}

// input reads a secret of the organisation that an agent names. The server's own are none of them.
func (b bringUps) input(ctx context.Context, name string) (string, error) {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 || i == len(name)-1 {
		return "", hub.Refuse("inputSecret must name a secret as scope/key")
	}
	values, err := b.secrets.Resolve(ctx, ci.DefaultOrg, []string{name[:i]})
	switch {
	case errors.Is(err, secrets.ErrReserved):
		return "", hub.Refuse("secret %s is the server's own", ci.CutName(name))
	case errors.Is(err, secrets.ErrNotConfigured):
		return "", hub.Refuse("the server has no key to open secrets with")
	case err != nil:
		return "", err
	}
	value, ok := values[name[i+1:]]
	if !ok {
		return "", hub.Refuse("secret %s does not exist", ci.CutName(name))
	}
	return value, nil
}
