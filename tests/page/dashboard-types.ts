// The types of Grafana (npm: @grafana/schema) for a dashboard in JSON. test_dashboard.py appends the dashboard to this file.
import type { Dashboard, DataQuery, FieldConfig, FieldConfigSource, GraphFieldConfig, Panel } from "@grafana/schema";
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { Options as TimeSeriesOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

/** Members of enums of strings are their values. */
type Json<T> = T extends string ? `${T}` : T extends object ? { [Key in keyof T]: Json<T[Key]> } : T;
/** Grafana has defaults for the options that a panel leaves out. */
type Part<T> = T extends object ? { [Key in keyof T]?: Part<T[Key]> } : T;
/** Without index signatures, which allow any key. */
type Known<T> = { [Key in keyof T as string extends Key ? never : Key]: T[Key] };

/** A query to Prometheus. The package does not have its keys; these are the ones that the dashboard uses. */
type Query = DataQuery & { expr: string; legendFormat: string };
type Fields<Custom> = Omit<FieldConfigSource, "defaults"> & { defaults: Omit<Known<FieldConfig>, "custom"> & { custom?: Custom } };
type PanelOf<Type, Options, Custom> = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: Type;
  options: Part<Options>;
  fieldConfig: Fields<Custom>;
  targets: Query[];
};
type Checked = Json<
  Omit<Dashboard, "panels"> & {
    panels: (PanelOf<"stat", StatOptions, never> | PanelOf<"timeseries", TimeSeriesOptions, GraphFieldConfig>)[];
  }
>;
