// Draws a dashboard of deploy/grafana with the panels of Grafana's own libraries, from the answers of a Prometheus. What is missing is what
// Grafana has around them: its menus, and the bar with the variables.
const { createElement: h } = require('react');
const { createRoot } = require('react-dom/client');
const { firstValueFrom } = require('rxjs');
const {
  createTheme, dateTime, FieldColorModeId, FieldType, getDisplayProcessor, reduceField, standardTransformers, standardTransformersRegistry,
  ThemeContext, toDataFrame, transformDataFrame,
} = require('@grafana/data');
const { BigValue, BigValueColorMode, BigValueGraphMode, GlobalStyles, PanelChrome, Table, TimeSeries } = require('@grafana/ui');

const { board, prometheus, seconds, width } = window.picture;
const theme = createTheme({ colors: { mode: 'dark' } });
const cell = 30, gap = 8; // Grafana's grid: 24 columns, and rows of 30 px
const end = Math.floor(Date.now() / 1000), start = end - seconds, step = Math.max(1, Math.round(seconds / 150));
const range = { from: dateTime(start * 1000), to: dateTime(end * 1000), raw: { from: 'now', to: 'now' } };
const variables = { $__rate_interval: '20s', $cluster: '.*', $namespace: '.*', $job: '.*', $dashjob: '.*' };

const known = new Map(Object.values(standardTransformers).map((t) => [t.id, { id: t.id, name: t.name, transformation: () => Promise.resolve(t) }]));
standardTransformersRegistry.setInit(() => [...known.values()]);

async function ask(path, parameters) {
  const response = await fetch(prometheus + path + '?' + new URLSearchParams(parameters));
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()).data.result;
}

// What a panel of Grafana shows of a number that is none: nothing.
const number = (text) => (Number.isFinite(+text) ? +text : null);

const named = (text) => text.replace(/\$\w+/g, (name) => variables[name] ?? name);

// busiest is the lock whose holds and waits are shown: the one that most got after waiting.
async function busiest() {
  const [found] = await ask('/api/v1/query', { query: 'topk(1, sum by (lock) (unlocker_lock_wait_seconds_count))', time: end });
  return found?.metric.lock ?? 'nobody waited for any';
}

const legend = (format, labels) => (format || '').replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');

async function rows(target, query, value) {
  const found = await ask('/api/v1/query', { query, time: end });
  const names = [...new Set(found.flatMap((s) => Object.keys(s.metric)))].sort();
  return [toDataFrame({ refId: target.refId, fields: [
    { name: 'Time', type: FieldType.time, values: found.map((s) => s.value[0] * 1000) },
    ...names.map((name) => ({ name, type: FieldType.string, values: found.map((s) => s.metric[name] ?? '') })),
    { name: value, type: FieldType.number, values: found.map((s) => number(s.value[1])) },
  ] })];
}

async function lines(target, query) {
  const found = target.instant
    ? (await ask('/api/v1/query', { query, time: end })).map((s) => ({ metric: s.metric, values: [[end, s.value[1]]] }))
    : await ask('/api/v1/query_range', { query, start, end, step });
  const times = target.instant ? [end] : Array.from({ length: Math.floor(seconds / step) + 1 }, (_, i) => start + i * step);
  return found.map(({ metric, values }) => {
    const at = new Map(values.map(([time, value]) => [Math.round(time), number(value)]));
    const name = legend(target.legendFormat, metric) || 'Value';
    return toDataFrame({ refId: target.refId, name, fields: [
      { name: 'Time', type: FieldType.time, values: times.map((t) => t * 1000) },
      { name: 'Value', type: FieldType.number, labels: metric, values: times.map((t) => at.get(t) ?? null), config: { displayNameFromDS: name } },
    ] });
  });
}

// answers are the frames of a panel, dressed as its settings say.
async function answers(panel) {
  if (panel.type === 'row') return [];
  const asked = panel.targets.map((target) => {
    const query = named(target.expr);
    return panel.type === 'table' ? rows(target, query, panel.targets.length > 1 ? 'Value #' + target.refId : 'Value') : lines(target, query);
  });
  let frames = (await Promise.all(asked)).flat();
  if (panel.transformations) frames = await firstValueFrom(transformDataFrame(panel.transformations, frames));
  let series = 0;
  for (const field of frames.flatMap((frame) => frame.fields)) {
    field.config = settings(panel, field);
    if (field.type === FieldType.number && panel.type === 'timeseries') {
      field.state = { ...field.state, seriesIndex: series++ };
      field.config.color ??= { mode: FieldColorModeId.PaletteClassic };
    }
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
  return frames;
}

const set = (config, id, value) => { if (id.startsWith('custom.')) config.custom[id.slice(7)] = value; else config[id] = value; };

function settings(panel, field) {
  const { defaults, overrides } = panel.fieldConfig;
  const config = { ...defaults, custom: { ...defaults.custom }, ...field.config };
  const name = field.config.displayNameFromDS ?? field.config.displayName ?? field.name;
  for (const { matcher, properties } of overrides) {
    if (matcher.id !== 'byName') throw new Error(`${panel.title}: the matcher ${matcher.id} is not known here`);
    if (matcher.options === name) properties.forEach((p) => { set(config, p.id, p.value); });
  }
  if (field.type !== FieldType.number) delete config.unit;
  return config;
}

function stat(panel, frames, size) {
  const field = frames[0]?.fields.find((f) => f.type === FieldType.number);
  const value = field ? field.display(reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull) : { text: panel.fieldConfig.defaults.noValue ?? '', numeric: NaN };
  return h(BigValue, { ...size, theme, value: { ...value, title: undefined }, colorMode: BigValueColorMode.Value, graphMode: BigValueGraphMode.None });
}

function inside(panel, frames, size) {
  if (panel.type === 'stat') return stat(panel, frames, size);
  if (frames.every((frame) => frame.length === 0)) {
    return h('div', { style: { display: 'grid', placeItems: 'center', height: size.height, color: theme.colors.text.secondary } },
      panel.fieldConfig.defaults.noValue ?? 'No data');
  }
  if (panel.type === 'table') {
    return h(Table, { ...size, data: frames[0], cellHeight: panel.options.cellHeight, fieldConfig: panel.fieldConfig, initialSortBy: panel.options.sortBy });
  }
  if (panel.type !== 'timeseries') throw new Error(`${panel.title}: the type ${panel.type} is not known here`);
  return h(TimeSeries, { ...size, frames, timeRange: range, timeZone: 'utc', legend: { ...panel.options.legend, calcs: [] }, options: panel.options });
}

function Panel({ panel, frames }) {
  const { x, y, w, h: tall } = panel.gridPos;
  const column = (width - gap) / 24;
  const size = { width: Math.floor(w * column - gap), height: tall * (cell + gap) - gap };
  const style = { position: 'absolute', left: gap + x * column, top: gap + y * (cell + gap), ...size };
  if (panel.type === 'row') return h('div', { style: { ...style, ...theme.typography.h5, color: theme.colors.text.primary } }, named(panel.title));
  return h('div', { style }, h(PanelChrome, { ...size, title: named(panel.title), padding: panel.type === 'stat' ? 'none' : 'md' },
    (w, h) => inside(panel, frames, { width: w, height: h })));
}

async function main() {
  variables.$lock = await busiest();
  const top = Math.min(...board.panels.map((p) => p.gridPos.y));
  board.panels.forEach((p) => { p.gridPos.y -= top; });
  const frames = await Promise.all(board.panels.map(answers));
  const height = gap + Math.max(...board.panels.map((p) => p.gridPos.y + p.gridPos.h)) * (cell + gap);
  const style = { position: 'relative', width, height, background: theme.colors.background.canvas };
  createRoot(document.getElementById('board')).render(h(ThemeContext.Provider, { value: theme }, h(GlobalStyles),
    h('div', { style }, board.panels.map((panel, i) => h(Panel, { key: panel.id, panel, frames: frames[i] })))));
  setTimeout(() => { window.drawn = 'yes'; }, 3000); // graphs are drawn after their frames
}

main().catch((e) => { window.drawn = String(e); });
