package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/pressly/goose/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Goose applies the migrations of goose.
func Goose(ctx context.Context, locks *mutex.Client, p *goose.Provider) error {
	return locks.Do(ctx, "shop/migrate", func(ctx context.Context) error {
		_, err := p.Up(ctx)
		return err
	}, mutex.Purpose("migrate shop"), mutex.AutoUnlockAfter(time.Minute), mutex.Heartbeat(time.Hour))
}

// Migrate applies those of golang-migrate, which stops between two of them when the lock is lost.
func Migrate(ctx context.Context, locks *mutex.Client, m *migrate.Migrate) error {
	return locks.Do(ctx, "shop/migrate", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { m.GracefulStop <- true })()
		return errors.Join(m.Up(), context.Cause(ctx)) // migrate.ErrNoChange on all other replicas
	}, mutex.Purpose("migrate shop"), mutex.AutoUnlockAfter(time.Minute), mutex.Heartbeat(time.Hour))
}
