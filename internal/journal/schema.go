// SPDX-License-Identifier: Apache-2.0

package journal

const (
	// applicationID tells our files from other SQLite files: "FLJn".
	applicationID = 0x464c4a6e
	// format is the number of the schema below.
	format = len(formats)
	// formatLists is the first in which lists are recorded.
	formatLists = 2
)

// formats are what each format adds to the one before. What was released stays
// as it is: a new file goes the way that an old one goes. All of them together
// fit the first page of a file, so that the rest can be read when others are lost.
var formats = [...]string{schema, lists}

// The unique index on objects serves look-ups by kind, namespace and name.
// Two indexes on events are what appending can afford: an object's history,
// and time.
const schema = `
CREATE TABLE runs (
  id       INTEGER PRIMARY KEY,
  started  INTEGER NOT NULL,
  ended    INTEGER,
  recorder TEXT NOT NULL,
  server   TEXT NOT NULL,
  host     TEXT NOT NULL
);
CREATE TABLE kinds (
  id       INTEGER PRIMARY KEY,
  "group"  TEXT NOT NULL,
  version  TEXT NOT NULL,
  resource TEXT NOT NULL,
  kind     TEXT NOT NULL,
  UNIQUE (resource, "group", version, kind)
);
CREATE TABLE objects (
  id        INTEGER PRIMARY KEY,
  kind      INTEGER NOT NULL REFERENCES kinds,
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  uid       TEXT NOT NULL,
  UNIQUE (name, namespace, kind, uid)
);
CREATE TABLE events (
  id               INTEGER PRIMARY KEY,
  time             INTEGER NOT NULL,
  run              INTEGER NOT NULL REFERENCES runs,
  object           INTEGER NOT NULL REFERENCES objects,
  type             TEXT NOT NULL,
  resource_version TEXT NOT NULL,
  manager          TEXT NOT NULL,
  operation        TEXT NOT NULL,
  subresource      TEXT NOT NULL,
  managed_at       INTEGER,
  diff             TEXT,
  content          TEXT
);
CREATE INDEX events_of_object ON events (object);
CREATE INDEX events_by_time ON events (time);
CREATE TABLE gaps (
  id           INTEGER PRIMARY KEY,
  run          INTEGER NOT NULL REFERENCES runs,
  kind         INTEGER NOT NULL REFERENCES kinds,
  began        INTEGER NOT NULL,
  ended        INTEGER NOT NULL,
  reason       TEXT NOT NULL,
  from_version TEXT NOT NULL,
  to_version   TEXT NOT NULL
);

CREATE VIEW history AS
  SELECT e.id, strftime('%Y-%m-%dT%H:%M:%fZ', e.time / 1e9, 'unixepoch') AS time,
         k.kind, o.namespace, o.name, e.type, e.manager, e.operation, e.subresource,
         e.resource_version, e.diff, e.content
  FROM events e JOIN objects o ON o.id = e.object JOIN kinds k ON k.id = o.kind;
CREATE VIEW changes AS
  SELECT h.id, h.time, h.kind, h.namespace, h.name, h.manager,
         c.value ->> 'op' AS op, c.value ->> 'path' AS path, c.value -> 'old' AS old, c.value -> 'new' AS new
  FROM history h, json_each(h.diff) c;
CREATE VIEW unwatched AS
  SELECT k.kind, strftime('%Y-%m-%dT%H:%M:%fZ', g.began / 1e9, 'unixepoch') AS began,
         strftime('%Y-%m-%dT%H:%M:%fZ', g.ended / 1e9, 'unixepoch') AS ended,
         (g.ended - g.began) / 1e9 AS seconds, g.reason
  FROM gaps g JOIN kinds k ON k.id = g.kind;
`

// The index on events has only those of lists, so it costs others nothing.
const lists = `
CREATE TABLE lists (
  id               INTEGER PRIMARY KEY,
  run              INTEGER NOT NULL REFERENCES runs,
  kind             INTEGER NOT NULL REFERENCES kinds,
  namespace        TEXT NOT NULL,
  began            INTEGER NOT NULL,
  ended            INTEGER,
  resource_version TEXT NOT NULL,
  objects          INTEGER,
  reason           TEXT NOT NULL,
  last_event       INTEGER
);
ALTER TABLE runs ADD COLUMN lists_from INTEGER;
ALTER TABLE events ADD COLUMN list INTEGER REFERENCES lists;
CREATE INDEX events_of_list ON events (list) WHERE list IS NOT NULL;
CREATE VIEW relists AS
  SELECT k.kind, l.namespace, strftime('%Y-%m-%dT%H:%M:%fZ', l.began / 1e9, 'unixepoch') AS began,
         strftime('%Y-%m-%dT%H:%M:%fZ', l.ended / 1e9, 'unixepoch') AS ended,
         (l.ended - l.began) / 1e9 AS seconds, l.objects,
         (SELECT count(*) FROM events e WHERE e.list = l.id) AS events, l.reason
  FROM lists l JOIN kinds k ON k.id = l.kind WHERE l.reason <> 'start';
`
