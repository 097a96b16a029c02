package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var quiet = slog.New(slog.DiscardHandler)

func TestALoopThatFailsIsStartedAgainEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context(), quiet)
		begin := time.Now()
		var at []time.Duration
		g.Go("failing", func(context.Context) error {
			at = append(at, time.Since(begin))
			return errors.New("a bad moment")
		})
		time.Sleep(40 * time.Second)
		g.Stop()
		want := []time.Duration{0}
		for next, pause := 100*time.Millisecond, 100*time.Millisecond; next < 40*time.Second; next += pause {
			want = append(want, next)
			pause = min(2*pause, 10*time.Second)
		}
		if d := cmp.Diff(want, at); d != "" {
			t.Errorf("started at (-want +got):\n%s", d)
		}
	})
}

func TestALoopThatIsDoneIsNotStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context(), quiet)
		n := 0
		g.Go("done", func(context.Context) error { n++; return nil })
		time.Sleep(time.Minute)
		g.Stop()
		if n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

func TestStopEndsLoopsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context(), quiet)
		var cause error
		ended := false
		g.Go("slow to end", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(time.Second)
			ended = true
			return cause
		})
		synctest.Wait()
		g.Stop()
		g.Stop()
		if !ended || !errors.Is(cause, ErrStopped) {
			t.Errorf("ended %v with cause %v", ended, cause)
		}
	})
}

func TestEveryTurnsAtOnceWhenPokedAndOnceAPeriodOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context(), quiet)
		poke, begin := NewPoke(), time.Now()
		var at []time.Duration
		g.Go("turning", func(ctx context.Context) error {
			return Every(ctx, quiet, "turning", time.Second, poke, func(context.Context) error {
				at = append(at, time.Since(begin))
				time.Sleep(10 * time.Millisecond)
				return errors.New("the next one tries again")
			})
		})
		time.Sleep(1500 * time.Millisecond)
		poke.Wake()
		time.Sleep(5 * time.Millisecond)
		for range 3 { // while a turn is running they are one
			poke.Wake()
		}
		time.Sleep(time.Second - 10*time.Millisecond)
		g.Stop()
		ms := time.Millisecond
		if d := cmp.Diff([]time.Duration{0, 1000 * ms, 1500 * ms, 1510 * ms, 2000 * ms}, at); d != "" {
			t.Errorf("turned at (-want +got):\n%s", d)
		}
	})
}

func TestSleepTellsWhetherItWasCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !Sleep(ctx, 900*time.Millisecond) || Sleep(ctx, 900*time.Millisecond) {
			t.Error("the first sleep fits into the second's time, and the second does not")
		}
	})
}

func TestTurnsAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(t.Context(), quiet)
		var told []Turn
		failure := errors.New("no database")
		ends := []error{nil, failure, nil}
		n := 0
		g.Go("turning", func(ctx context.Context) error {
			return Every(OnTurn(ctx, func(t Turn) { told = append(told, t) }), quiet, "turning", time.Second, nil, func(ctx context.Context) error {
				if n == len(ends) {
					<-ctx.Done() // and is cut short
					return context.Cause(ctx)
				}
				time.Sleep(10 * time.Millisecond)
				n++
				return ends[n-1]
			})
		})
		time.Sleep(10 * time.Second)
		g.Stop()
		want := []Turn{{"turning", 10 * time.Millisecond, nil}, {"turning", 10 * time.Millisecond, failure}, {"turning", 10 * time.Millisecond, nil}}
		if !slices.Equal(told, want) {
			t.Errorf("told of %v", told)
		}
	})
}
